/* Search without a server: a page from the disk may not start a worker, so its script runs in a hidden frame instead.
   Only the offline copy of the site loads this, before the theme's own script; from a server it does nothing. */
(function () {
  "use strict";
  if (location.protocol !== "file:") return;

  const message = (data) => new MessageEvent("message", { data: structuredClone(data) });

  class FrameWorker extends EventTarget {
    constructor(address) {
      super();
      this.waiting = []; // what was said before the script could hear it
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.title = "Search";
      this.frame.setAttribute("aria-hidden", "true");
      this.frame.srcdoc = "<!doctype html><title>Search</title>";
      this.frame.addEventListener("load", () => this.fill(address), { once: true });
      document.body.append(this.frame);
    }

    fill(address) {
      const inner = this.frame.contentWindow;
      inner.postMessage = (data) => this.dispatchEvent(message(data));
      const script = inner.document.createElement("script");
      script.src = String(address);
      script.onload = () => {
        const said = this.waiting;
        this.waiting = null;
        said.forEach((data) => this.postMessage(data));
      };
      script.onerror = () => this.dispatchEvent(new Event("error"));
      inner.document.body.append(script);
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.frame.contentWindow.dispatchEvent(message(data));
    }

    terminate() {
      this.frame.remove();
    }
  }

  window.Worker = FrameWorker;
})();
