/* Pagewalk's player, the controls: step back, play, step, the track, pace, thread, a link to the moment, the keys.
   They are made once a player and only call its methods. */
(function () {
  "use strict";
  if (window.pagewalkBar) return;

  const PACES = [["2", "slow"], ["5", "steady"], ["15", "fast"]]; // moments a second
  const KEYS = "← → step back and on, with Shift ten at once. Home and End: first and last moment. Space: play or pause. ?: this line.";

  /* The parts that the player keeps: playButton, slider, bands, thumb, count, pace, picker, link, helper, keys. */
  function make(player, stage) {
    const { node } = window.pagewalkViews;
    const bar = node("div", "pw-bar", stage);
    const button = (text, name, act) => {
      const made = node("button", "pw-button", bar, text);
      made.type = "button";
      made.setAttribute("aria-label", name);
      made.title = name;
      made.addEventListener("click", act);
      return made;
    };
    button("◀", "Step back", () => player.step(-1));
    const playButton = button("▶", "Play", () => player.toggle());
    button("▶❘", "Step", () => player.step(1));
    const { slider, bands, thumb } = track(player, bar);
    const count = node("span", "pw-count", bar);
    count.setAttribute("aria-hidden", "true");
    const pace = choice(bar, "Pace", PACES);
    pace.value = "5";
    const name = ({ number }) => (number < 32 ? "lane " + number : "warp " + (number >> 5) + ", lane " + (number % 32));
    const picker = choice(bar, "Thread", player.film.trace.threads.map((thread, at) => [String(at), name(thread)]));
    picker.addEventListener("change", () => player.take(Number(picker.value)));
    const link = node("a", "pw-play-link", bar, "link");
    link.title = "A link to this moment";
    link.addEventListener("click", (event) => {
      event.preventDefault();
      player.keep();
    });
    const helper = button("?", "Keys", () => player.help());
    helper.setAttribute("aria-expanded", "false");
    const keys = node("p", "pw-play-keys", stage, KEYS);
    keys.hidden = true;
    return { playButton, slider, bands, thumb, count, pace, picker, link, helper, keys };
  }

  function choice(bar, name, options) {
    const { node } = window.pagewalkViews;
    const select = node("select", "pw-select", bar);
    select.setAttribute("aria-label", name);
    options.forEach(([value, text]) => { node("option", "", select, text).value = value; });
    return select;
  }

  /* Not an <input>: the theme keeps its own keys off those, and they must still work here. */
  function track(player, bar) {
    const { node } = window.pagewalkViews;
    const slider = node("div", "pw-track", bar);
    slider.tabIndex = 0;
    slider.setAttribute("role", "slider");
    slider.setAttribute("aria-label", "Moment");
    slider.setAttribute("aria-valuemin", "1");
    const bands = node("div", "pw-bands", slider);
    const thumb = node("div", "pw-thumb", slider);
    const seek = (event) => {
      const box = slider.getBoundingClientRect();
      player.seek((event.clientX - box.left) / box.width);
    };
    slider.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      player.pause();
      player.quiet(true);
      slider.setPointerCapture(event.pointerId);
      seek(event);
    });
    slider.addEventListener("pointermove", (event) => { if (slider.hasPointerCapture(event.pointerId)) seek(event); });
    slider.addEventListener("lostpointercapture", () => player.settle());
    return { slider, bands, thumb };
  }

  window.pagewalkBar = { make };
})();
