// Keeps the start page current: the server says that something changed, htmx fetches the page and morphs it in.
(() => {
  "use strict";
  const now = document.getElementById("now");
  if (!now) return;
  const light = document.getElementById("live");
  let source = null;
  let again = 0;

  const say = (state, words) => {
    light.dataset.state = state;
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
    const seen = document.getElementById("now").dataset.version;
    source = new EventSource("/events?seen=" + encodeURIComponent(seen));
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

  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  document.addEventListener("htmx:after:swap", () => {
    document.title = document.getElementById("now").dataset.title;
  });
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", open);
})();
