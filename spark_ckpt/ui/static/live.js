// Fetches the page again and replaces its main part. Focus, scrolled tables and open selections stay where they are.
"use strict";
const EVERY_MS = 3000;

async function refresh() {
  if (document.hidden || String(window.getSelection()) !== "") return;
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const main = document.getElementById("main");
  const scrolled = [...main.querySelectorAll(".scrolled")].map((e) => [e.scrollLeft, e.scrollTop]);
  const focused = main.contains(document.activeElement) ? place(document.activeElement) : null;
  main.replaceChildren(...fresh.getElementById("main").childNodes);
  main.querySelectorAll(".scrolled").forEach((e, i) => scrolled[i] && e.scrollTo(...scrolled[i]));
  if (focused !== null) main.querySelectorAll("a, [tabindex]")[focused]?.focus({ preventScroll: true });
  document.title = fresh.title;
}

function place(element) {
  return [...document.getElementById("main").querySelectorAll("a, [tabindex]")].indexOf(element);
}

setInterval(() => refresh().catch(() => {}), EVERY_MS);
