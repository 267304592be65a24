"""Stepping through a recorded run: the films, their pictures, and what joins their lines to concepts."""
