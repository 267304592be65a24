/* Pagewalk's player, the films: loads one by a script element, so that it also works from file://, and unpacks it.
   Every film is loaded once a page load, whoever asks for it. */
(function () {
  "use strict";
  if (window.pagewalkFilm) return;

  const HERE = document.currentScript ? document.currentScript.src : "";
  const films = new Map(); // id -> promise of { content, trace }

  function fetchScript(id) {
    return new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = new URL("../films/" + id + ".js", HERE).href;
      script.onload = () => resolve();
      script.onerror = () => reject(new Error("the film " + id + " is not here. It is made by: pagewalk site build"));
      document.head.append(script);
    });
  }

  async function unpack(id) {
    if (!(window.pagewalkFilms && window.pagewalkFilms[id])) await fetchScript(id);
    if (!window.DecompressionStream) throw new Error("this browser cannot unpack a film (it lacks DecompressionStream)");
    const bytes = Uint8Array.from(atob(window.pagewalkFilms[id]), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const content = JSON.parse(await new Response(stream).text());
    return { content, trace: window.pagewalkTrace.read(content.trace) };
  }

  /* A film that could not be loaded is asked for again the next time. */
  function load(id) {
    if (!films.has(id)) {
      films.set(id, unpack(id));
      films.get(id).catch(() => films.delete(id));
    }
    return films.get(id);
  }

  window.pagewalkFilm = { load };
})();
