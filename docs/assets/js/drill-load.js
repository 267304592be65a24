/* Pagewalk's drills, the loader: the only script of theirs that every page has. Where a page holds a [data-drill], it
   loads the others by script elements, once, so that it also works from file://. Where it holds a [data-fix], or comes
   with the key of a server that runs code, it loads those of the editor. */
(function () {
  "use strict";
  const drill = (window.PagewalkDrill = window.PagewalkDrill || {});
  if (drill.ready) return;

  const HERE = document.currentScript ? document.currentScript.src : "";
  // In this order: first what computes and knows no page, then what shows it.
  const LOGIC = ["words", "exact", "quantities", "grade", "find", "fsrs", "log", "choose"];
  const PAGE = ["keep", "views", "source", "progress", "ends", "sitting", "element", "page"];
  const FIX = ["editor", "failure", "code"];
  const files = new Map(); // name -> promise of the unpacked data
  const started = new Map(); // the first name of a list -> promise that all of it has run

  function fetchScript(path, missing) {
    return new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = new URL(path, HERE).href;
      script.async = false; // they run in the order in which they are asked for
      script.onload = () => resolve();
      script.onerror = () => reject(new Error(missing));
      document.head.append(script);
    });
  }

  /* A promise that every script of a list has run; asked again after a failure, it tries again. */
  function load(names) {
    const [first] = names;
    if (!started.has(first)) {
      const paths = names.map((name) => "drill-" + name + ".js");
      started.set(first, Promise.all(paths.map((path) => fetchScript(path, path + " cannot be loaded"))));
      started.get(first).catch(() => started.delete(first));
    }
    return started.get(first);
  }

  const ready = () => load([...LOGIC, ...PAGE]);

  async function unpack(name) {
    const all = () => window.pagewalkDrills || {};
    const missing = "the file " + name + " of the drills is not here. It is made by: pagewalk site build";
    if (!all()[name]) await fetchScript("../drills/" + name + ".js", missing);
    if (!window.DecompressionStream) throw new Error("this browser cannot unpack the drills (it lacks DecompressionStream)");
    const bytes = Uint8Array.from(atob(all()[name]), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  /* The content of docs/assets/drills/NAME.js, loaded once a page load; a failure is not kept. */
  function data(name) {
    if (!files.has(name)) {
      files.set(name, unpack(name));
      files.get(name).catch(() => files.delete(name));
    }
    return files.get(name);
  }

  /* A link of the data, which counts from the site's root, from wherever this page is. The offline copy has file names:
     there the theme's own links have them, too. */
  function url(href) {
    if (/^[a-z]+:/.test(href)) return href;
    const named = document.querySelector('a[href$=".html"]:not([href*=":"])') !== null;
    return new URL("../../" + (named ? href.replace(/\/(?=#|$)/, ".html") : href), HERE).href;
  }

  Object.assign(drill, { ready, data, url });

  function look() {
    const wanted = [];
    if (document.querySelector("[data-drill]")) wanted.push(ready());
    if (document.querySelector("[data-fix]") || window.location.hash.startsWith("#code=")) wanted.push(load(FIX));
    wanted.forEach((loading) => loading.catch((error) => console.error(error)));
  }

  // From disk the theme's instant navigation ends its stream before the first page.
  if (window.document$ && window.document$.subscribe && window.location.protocol !== "file:") window.document$.subscribe(look);
  else if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", look);
  else look();
})();
