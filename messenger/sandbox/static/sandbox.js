// Keeps the page live: the server says that something has changed, the page is read again,
// and its parts marked data-live are replaced. Without this file everything works by reloading.
"use strict";

const parts = () => document.querySelectorAll("[data-live]");
const clock = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit" });
const full = new Intl.DateTimeFormat([], { dateStyle: "medium", timeStyle: "short" });

function localTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (!Number.isNaN(at.getTime())) time.textContent = ("full" in time.dataset ? full : clock).format(at);
  }
}

function toBottom(part) {
  if ("bottom" in part.dataset) part.scrollTop = part.scrollHeight;
}

function swap(part, fresh) {
  localTimes(fresh);
  if (part.innerHTML === fresh.innerHTML) return;
  const low = part.scrollHeight - part.scrollTop - part.clientHeight < 120;
  const open = [...part.querySelectorAll("details[open]")].map((d) => d.closest("[id]").id);
  part.replaceChildren(...fresh.childNodes);
  for (const id of open) document.getElementById(id)?.querySelector("details")?.setAttribute("open", "");
  if (low) toBottom(part);
}

let reading = false;
let again = false;

async function refresh() {
  if (reading) { again = true; return; }
  reading = true;
  try {
    const answer = await fetch(location.pathname, { headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of parts()) {
      const fresh = page.getElementById(part.id);
      if (fresh) swap(part, fresh);
    }
    document.body.dataset.version = page.body.dataset.version;
  } catch {
    again = false; // the server is away; the event stream comes back when it does
  } finally {
    reading = false;
  }
  if (again) { again = false; refresh(); }
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!("quiet" in form.dataset)) return;
  event.preventDefault();
  const writer = document.querySelector(".composer [name=as]");
  const mine = form.querySelector("[data-writer]");
  if (writer && mine && writer.value) mine.value = writer.value;
  for (const button of form.querySelectorAll("button")) button.classList.add("busy");
  const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)) });
  if (new URL(answer.url).search) { location.assign(answer.url); return; }
  const text = form.querySelector("textarea");
  if (text) { text.value = ""; grow(text); text.focus(); }
  for (const button of form.querySelectorAll("button")) button.classList.remove("busy");
  await refresh();
});

function grow(text) {
  text.style.height = "auto";
  text.style.height = `${Math.min(text.scrollHeight, 160)}px`;
}

document.addEventListener("input", (event) => {
  if (event.target.matches(".composer textarea")) grow(event.target);
});

document.addEventListener("keydown", (event) => {
  const here = event.target.matches?.(".composer textarea") && event.key === "Enter";
  if (here && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    event.target.form.requestSubmit();
  }
});

localTimes(document);
for (const part of parts()) toBottom(part);
new EventSource("/events").onmessage = (event) => {
  if (event.data !== document.body.dataset.version) refresh();
};
