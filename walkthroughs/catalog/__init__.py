"""The walkthroughs, one module each: prose, case, probes and checks of every step stand together."""
