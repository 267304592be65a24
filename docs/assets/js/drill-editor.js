/* Pagewalk: an editor for one file: a plain textarea with its line numbers, in which the lines that differ are marked.
   The text is the textarea's own: typing, undo, selection and a screen reader work as in any other. Layers behind it
   carry the numbers and the marks. Events are delegated from the document, once. */
(function () {
  "use strict";
  if (window.pagewalkEditor) return;

  const INDENT = "    ";
  const MOST_CELLS = 4e6; // of the table of common lines; above it the whole middle counts as changed
  const editors = new WeakMap(); // textarea -> what it was made of

  function element(name, className, text) {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  /* ---- which lines differ ---- */

  function alike(before, after) {
    let head = 0;
    const least = Math.min(before.length, after.length);
    while (head < least && before[head] === after[head]) head += 1;
    let tail = 0;
    while (tail < least - head && before[before.length - 1 - tail] === after[after.length - 1 - tail]) tail += 1;
    return { head, tail };
  }

  /* lengths[i][j]: how many lines the rests from i and from j have in common, in order. */
  function common(before, after) {
    const lengths = Array.from({ length: before.length + 1 }, () => new Uint16Array(after.length + 1));
    for (let i = before.length - 1; i >= 0; i -= 1) {
      for (let j = after.length - 1; j >= 0; j -= 1) {
        lengths[i][j] = before[i] === after[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
      }
    }
    return lengths;
  }

  /* The lines of `now` that are not in `start` (numbers from 1), and those before which lines have gone. */
  function differences(start, now) {
    const before = start.split("\n");
    const after = now.split("\n");
    const { head, tail } = alike(before, after);
    const one = before.slice(head, before.length - tail);
    const two = after.slice(head, after.length - tail);
    const changed = [];
    const gone = [];
    if (one.length * two.length > MOST_CELLS) {
      two.forEach((_, j) => changed.push(head + j + 1));
      return { changed, gone };
    }
    const lengths = common(one, two);
    let i = 0;
    let j = 0;
    while (i < one.length || j < two.length) {
      if (i < one.length && j < two.length && one[i] === two[j]) {
        i += 1;
        j += 1;
      } else {
        // A run of lines that were put in the place of others, or only put in, or only taken out.
        const from = { i, j };
        while ((i < one.length || j < two.length) && !(i < one.length && j < two.length && one[i] === two[j])) {
          if (j >= two.length || (i < one.length && lengths[i + 1][j] >= lengths[i][j + 1])) i += 1;
          else j += 1;
        }
        for (let k = from.j; k < j; k += 1) changed.push(head + k + 1);
        if (i > from.i && j === from.j) gone.push(head + j + 1);
      }
    }
    return { changed, gone };
  }

  function ranges(numbers) {
    const found = [];
    numbers.forEach((number) => {
      const last = found[found.length - 1];
      if (last && number === last[1] + 1) last[1] = number;
      else found.push([number, number]);
    });
    return found.map(([first, last]) => (first === last ? String(first) : first + " to " + last));
  }

  /* ---- the picture behind the text ---- */

  function paint(area) {
    const editor = editors.get(area);
    const found = differences(editor.start, area.value);
    const count = area.value.split("\n").length;
    const list = editor.list;
    while (list.children.length < count) list.append(element("div"));
    while (list.children.length > count) list.lastChild.remove();
    const changed = new Set(found.changed);
    const gone = new Set(found.gone);
    Array.from(list.children).forEach((row, at) => {
      const wanted = (changed.has(at + 1) ? "pw-ed-new" : "") + (gone.has(at + 1) ? " pw-ed-gone" : "");
      if (row.className !== wanted) row.className = wanted;
    });
    const total = found.changed.length + found.gone.length;
    const places = found.changed.length ? " Lines " + ranges(found.changed).join(", ") + " differ." : "";
    const missing = found.gone.length ? " Lines are missing before " + ranges(found.gone).join(", ") + "." : "";
    editor.note.textContent = total ? "Changed." + places.replace(/^ Lines (\d+) differ/, " Line $1 differs") + missing
      : "As it was at the start.";
    editor.changed = total > 0;
    follow(area);
  }

  function follow(area) {
    editors.get(area).list.style.transform = "translateY(" + -area.scrollTop + "px)";
  }

  function lineHeight(area) {
    return parseFloat(window.getComputedStyle(area).lineHeight);
  }

  /* Show a line, a little below the top, with the caret at its first letter, so that who comes by keyboard is there,
     too. With `focus` the line is selected and the reader is taken to it. */
  function goTo(area, number, focus) {
    const lines = area.value.split("\n");
    const line = Math.min(Math.max(1, number), lines.length);
    const start = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    const first = start + /^ */.exec(lines[line - 1])[0].length;
    if (focus) area.focus({ preventScroll: true });
    area.setSelectionRange(first, focus ? start + lines[line - 1].length : first);
    if (focus) area.closest(".pw-ed").scrollIntoView({ block: "nearest" });
    area.scrollTop = Math.max(0, (line - 3) * lineHeight(area));
    follow(area);
  }

  /* ---- typing ---- */

  /* As if it was typed, so that it can be undone. */
  function type(area, text) {
    area.focus();
    const done = text === "" ? document.execCommand("delete") : document.execCommand("insertText", false, text);
    if (done) return;
    area.setRangeText(text, area.selectionStart, area.selectionEnd, "end");
    area.dispatchEvent(new Event("input", { bubbles: true }));
  }

  /* The whole text anew; only what differs is typed, so that undo and redo have little to do. */
  function replaceAll(area, text) {
    const old = area.value;
    if (old === text) return;
    const { head, tail } = alike(old, text);
    area.setSelectionRange(head, old.length - tail);
    type(area, text.slice(head, text.length - tail));
  }

  function startOfLine(text, at) {
    return text.lastIndexOf("\n", at - 1) + 1;
  }

  /* Indents the lines of a selection, or takes an indent from them; they stay selected. */
  function shift(area, back) {
    const text = area.value;
    const first = startOfLine(text, area.selectionStart);
    const to = Math.max(area.selectionEnd, first);
    const end = text.indexOf("\n", to > first && text[to - 1] === "\n" ? to - 1 : to);
    const last = end < 0 ? text.length : end;
    const old = text.slice(first, last);
    const made = old.split("\n").map((line) => (back ? line.replace(/^ {1,4}/, "") : line && INDENT + line)).join("\n");
    if (made === old) return;
    const caret = area.selectionStart === area.selectionEnd ? area.selectionStart : -1;
    area.setSelectionRange(first, last);
    type(area, made);
    if (caret < 0) area.setSelectionRange(first, first + made.length);
    else area.setSelectionRange(Math.max(first, caret + made.length - old.length), Math.max(first, caret + made.length - old.length));
  }

  function tab(area, event) {
    event.preventDefault();
    const selected = area.value.slice(area.selectionStart, area.selectionEnd);
    if (event.shiftKey || selected.includes("\n")) {
      shift(area, event.shiftKey);
      return;
    }
    const column = area.selectionStart - startOfLine(area.value, area.selectionStart);
    type(area, " ".repeat(INDENT.length - (column % INDENT.length)));
  }

  function enter(area, event) {
    const from = startOfLine(area.value, area.selectionStart);
    const line = area.value.slice(from, area.selectionStart);
    const indent = /^ */.exec(line)[0] + (/:\s*$/.test(line) ? INDENT : "");
    if (!indent) return;
    event.preventDefault();
    type(area, "\n" + indent);
  }

  function keydown(event) {
    const area = event.target;
    const editor = area instanceof HTMLTextAreaElement ? editors.get(area) : null;
    if (!editor || event.isComposing) return;
    const leaving = editor.leaving;
    if (event.key !== "Shift") editor.leaving = false;
    if (event.key === "Escape") {
      editor.leaving = true;
      editor.keys.textContent = "Tab leaves the editor now.";
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      editor.onRun();
    } else if (event.altKey || event.ctrlKey || event.metaKey) {
      return;
    } else if (event.key === "Tab" && !leaving) {
      tab(area, event);
    } else if (event.key === "Enter" && !event.shiftKey) {
      enter(area, event);
    }
    if (!editor.leaving) editor.keys.textContent = "";
  }

  function input(event) {
    const editor = event.target instanceof HTMLTextAreaElement ? editors.get(event.target) : null;
    if (!editor) return;
    paint(event.target);
    editor.onInput(event.target.value);
  }

  function scroll(event) {
    if (event.target instanceof HTMLTextAreaElement && editors.has(event.target)) follow(event.target);
  }

  /* An editor: {element, area}. `options`: id, label, start, text, first and last (the lines in question), onInput(text),
     onRun(). It is painted when it stands in the page: see `ready`. */
  function make(options) {
    const box = element("div", "pw-ed");
    const head = element("p", "pw-ed-head", options.label);
    const frame = element("div", "pw-ed-frame");
    const back = element("div", "pw-ed-back");
    back.setAttribute("aria-hidden", "true");
    const list = element("div", "pw-ed-lines");
    back.append(list);
    const area = element("textarea", "pw-ed-text");
    Object.assign(area, { id: options.id, value: options.text, spellcheck: false, wrap: "off", autocomplete: "off" });
    area.setAttribute("autocapitalize", "off");
    area.setAttribute("autocorrect", "off");
    area.setAttribute("aria-label", "The kernel’s file, to be mended: " + options.label);
    const hint = element("p", "pw-hint pw-ed-hint", "Ctrl+Enter runs it. Tab indents, Shift+Tab takes the indent back; " +
      "to leave with the keyboard press Escape, then Tab.");
    hint.id = options.id + "-hint";
    area.setAttribute("aria-describedby", hint.id);
    const note = element("p", "pw-ed-note");
    const keys = element("span", "pw-sr");
    keys.setAttribute("role", "status");
    frame.append(back, area);
    box.append(head, frame, note, hint, keys);
    editors.set(area, { ...options, list, note, keys, leaving: false, changed: false });
    return { element: box, area };
  }

  function ready(area) {
    paint(area);
    goTo(area, editors.get(area).first, false);
  }

  document.addEventListener("keydown", keydown);
  document.addEventListener("input", input);
  document.addEventListener("scroll", scroll, true);
  document.addEventListener("focusout", (event) => {
    const editor = event.target instanceof HTMLTextAreaElement ? editors.get(event.target) : null;
    if (editor) editor.leaving = false;
  });

  window.pagewalkEditor = { make, ready, goTo, replaceAll, differences };
})();
