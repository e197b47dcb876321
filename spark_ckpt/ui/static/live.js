// Fetches the page again and replaces its main part. Focus, scrolled tables and open selections stay where they are.
"use strict";
const EVERY_MS = 3000;
const main = () => document.getElementById("main");
const PLACES = "a, button, input, textarea, summary, [tabindex]";
let paused = false;

async function refresh() {
  if (paused || document.hidden || String(window.getSelection()) !== "") return;
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!answer.ok) throw new Error(answer.statusText);
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const scrolled = [...main().querySelectorAll(".scrolled")].map((e) => [e.scrollLeft, e.scrollTop]);
  const focused = main().contains(document.activeElement) ? place(document.activeElement) : -1;
  main().replaceChildren(...fresh.getElementById("main").childNodes);
  main().querySelectorAll(".scrolled").forEach((e, i) => scrolled[i] && e.scrollTo(...scrolled[i]));
  if (focused >= 0) main().querySelectorAll(PLACES)[focused]?.focus({ preventScroll: true });
  // A screen reader is told of states only: figures change with each look.
  if (document.title !== fresh.title) say((document.title = fresh.title));
  tell(`Updated ${new Date().toLocaleTimeString()}`, "");
}

function place(element) {
  return [...main().querySelectorAll(PLACES)].indexOf(element);
}

function say(text) {
  document.getElementById("said").textContent = text;
}

function tell(text, kind) {
  const seen = document.getElementById("seen");
  seen.textContent = text;
  seen.className = kind;
}

function start() {
  const seen = document.createElement("span");
  seen.id = "seen";
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Pause updates";
  button.addEventListener("click", () => {
    paused = !paused;
    button.textContent = paused ? "Resume updates" : "Pause updates";
  });
  document.getElementById("live").append(seen, " ", button);
  setInterval(() => refresh().catch(() => tell("No answer: what is shown is old", "bad")), EVERY_MS);
}

if (!main().hasAttribute("data-still")) start();
