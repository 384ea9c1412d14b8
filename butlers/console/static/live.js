// Keeps a page current: the server says that something changed, htmx fetches the page and morphs it in.
// What a button does never changes under the finger: see `held` and `moved`.
(() => {
  "use strict";
  // So long after buttons moved a press counts for nothing: it was aimed at what stood there before.
  const AIMED = 700;
  const now = () => document.getElementById("now");
  if (!now() || !now().hasAttribute("hx-get")) return; // the answer to a form stays as it is
  const stale = document.getElementById("stale");
  let source = null;
  let again = 0;
  let state = ["", ""];
  let places = "";
  let moved = -AIMED;

  const say = (name, words) => {
    state = [name, words];
    const light = document.getElementById("live");
    light.dataset.state = name;
    light.textContent = words;
  };
  const refresh = () => htmx.trigger("#now", "changed");
  const close = () => {
    clearTimeout(again);
    if (source) source.close();
    source = null;
  };
  const open = () => {
    // A hidden page holds no connection: browsers allow only six per host.
    if (source || document.hidden) return;
    const asked = { page: location.pathname + location.search, seen: now().dataset.version };
    source = new EventSource("/events?" + new URLSearchParams(asked));
    source.onopen = () => say("on", "Live");
    source.addEventListener("changed", refresh);
    source.onerror = () => {
      say("off", "Connecting…");
      if (source.readyState !== EventSource.CLOSED) return;
      // Refused, not just interrupted: the session may have ended, which the page itself then tells.
      close();
      refresh();
      again = setTimeout(open, 5000);
    };
  };

  const isTyped = (field) => {
    if (field.tagName === "SELECT") {
      const first = Math.max(0, [...field.options].findIndex((option) => option.defaultSelected));
      return field.selectedIndex !== first;
    }
    return field.type === "checkbox" ? field.checked !== field.defaultChecked : field.value !== field.defaultValue;
  };
  // Words that somebody is typing are not taken away, and a form that decides about one thing never decides about another.
  const held = (fresh) => {
    const [old, bound] = [now().dataset.bound, fresh.dataset.bound];
    if (old && bound && old !== bound) return true;
    return [...now().querySelectorAll("input:not([type=hidden]), textarea, select")].some(isTyped);
  };
  const buttons = () =>
    [...now().querySelectorAll("button")].map((button) => {
      const box = button.getBoundingClientRect();
      return `${Math.round(box.left)} ${Math.round(box.top)} ${button.textContent}`;
    }).join();

  document.addEventListener("htmx:before:swap", (event) => {
    const fresh = new DOMParser().parseFromString(event.detail.ctx.text, "text/html").getElementById("now");
    const same = fresh && fresh.dataset.version === now().dataset.version;
    if (same || (fresh && held(fresh))) {
      stale.hidden = same;
      event.preventDefault();
      return;
    }
    places = buttons();
  });
  document.addEventListener("htmx:after:swap", () => {
    stale.hidden = true;
    say(...state);
    if (buttons() !== places) moved = performance.now();
  });
  document.addEventListener("click", (event) => {
    // The second press of a double click was aimed at the page before, whose next button may stand there now.
    if (!event.target.closest("button") || (event.detail < 2 && performance.now() - moved > AIMED)) return;
    event.preventDefault();
    event.stopPropagation();
  }, true);
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", open);
})();
