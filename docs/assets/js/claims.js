/* Pagewalk: the filters of the claims page. Without this script every claim is listed and the filters stay hidden.
   What is chosen stands in the address, so that a filtered list can be linked to: claims/?verdict=wrong. */
(function () {
  "use strict";
  if (window.pagewalkClaims) return;

  const all = (root, selector) => Array.from(root.querySelectorAll(selector));

  function fits(claim, choice) {
    if (choice.group && claim.dataset.group !== choice.group) return false;
    if (choice.verdict && claim.dataset.verdict !== choice.verdict) return false;
    return !choice.concept || claim.dataset.concepts.split(" ").includes(choice.concept);
  }

  function chosen(form) {
    return Object.fromEntries(all(form, "select").map((field) => [field.name, field.value]));
  }

  /* A group's heading goes with its last claim. */
  function headings(claims) {
    const shown = new Set(claims.filter((claim) => !claim.hidden).map((claim) => claim.dataset.group.replaceAll(" ", "-")));
    new Set(claims.map((claim) => claim.dataset.group.replaceAll(" ", "-"))).forEach((group) => {
      const heading = document.getElementById(group);
      if (heading) heading.hidden = !shown.has(group);
    });
  }

  function apply(form) {
    const claims = all(document, ".pw-claim");
    const choice = chosen(form);
    claims.forEach((claim) => { claim.hidden = !fits(claim, choice); });
    headings(claims);
    const count = claims.filter((claim) => !claim.hidden).length;
    form.querySelector(".pw-filter-count").textContent = count + " of " + claims.length + " shown";
  }

  function remember(form) {
    const query = new URLSearchParams(Object.entries(chosen(form)).filter(([, value]) => value));
    const text = query.toString();
    window.history.replaceState(null, "", window.location.pathname + (text ? "?" + text : ""));
  }

  /* A claim that was linked to is shown, whatever the filters say. */
  function target() {
    const claim = window.location.hash ? document.getElementById(window.location.hash.slice(1)) : null;
    if (claim && claim.matches(".pw-claim")) claim.hidden = false;
  }

  function page() {
    const form = document.querySelector("form.pw-filters");
    if (!form) return;
    form.hidden = false;
    const query = new URLSearchParams(window.location.search);
    all(form, "select").forEach((field) => {
      const wanted = query.get(field.name) || "";
      field.value = all(field, "option").some((option) => option.value === wanted) ? wanted : "";
    });
    apply(form);
    target();
  }

  document.addEventListener("change", (event) => {
    const form = event.target instanceof Element ? event.target.closest("form.pw-filters") : null;
    if (!form) return;
    apply(form);
    remember(form);
  });
  document.addEventListener("reset", (event) => {
    if (!event.target.matches("form.pw-filters")) return;
    window.setTimeout(() => { apply(event.target); remember(event.target); }, 0);
  });
  document.addEventListener("submit", (event) => {
    if (event.target.matches("form.pw-filters")) event.preventDefault();
  });
  window.addEventListener("hashchange", target);

  window.pagewalkClaims = { page: page };
  if (window.document$ && window.document$.subscribe) window.document$.subscribe(page);
  else if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", page);
  else page();
})();
