"use strict";
// Review from the keyboard: j k move, a approves, r rejects with a reason, e edits, u undoes, / searches.
const said = document.getElementById("said");
const cards = () => [...document.querySelectorAll("#queue article")];
let current = null;
let lastChange = null;

function go(card) {
  if (!card) return;
  current = card;
  card.focus();
  card.scrollIntoView({ block: "nearest" });
}

function step(by) {
  const all = cards();
  const at = all.indexOf(current);
  go(all[at < 0 ? 0 : Math.min(all.length - 1, Math.max(0, at + by))]);
}

async function post(address, fields) {
  const response = await fetch(address, {
    method: "POST", headers: { Accept: "application/json" }, body: new URLSearchParams(fields), credentials: "same-origin",
  });
  const answer = await response.json().catch(() => ({ message: "the page did not answer; reload it" }));
  return { ok: response.ok, answer };
}

async function decide(form) {
  const card = form.closest("article");
  const all = cards();
  const next = all[all.indexOf(card) + 1] || all[all.indexOf(card) - 1];
  let result;
  try {
    result = await post(form.action, new FormData(form));
  } catch {
    said.textContent = "the page is not there any more; start pmem lessons serve again";
    return;
  }
  said.textContent = result.answer.message + (result.ok ? " (u undoes it)" : "");
  if (!result.ok) return;
  lastChange = result.answer.change;
  card.remove();
  const count = document.getElementById("count");
  count.textContent = String(Number(count.textContent) - 1);
  current = null;
  go(next);
}

async function undo() {
  if (lastChange === null) return;
  const word = document.querySelector('meta[name="form-word"]').content;
  const { ok, answer } = await post(`/undo/${lastChange}`, { word });
  if (ok) location.reload();
  else said.textContent = answer.message;
}

document.addEventListener("submit", (event) => {
  if (!event.target.closest("#queue")) return;
  event.preventDefault();
  decide(event.target);
});

document.addEventListener("focusin", (event) => {
  const card = event.target.closest && event.target.closest("#queue article");
  if (card) current = card;
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (typing) {
    if (event.key === "Escape" && current) go(current);
    return;
  }
  const form = (action) => current && current.querySelector(`form[data-action="${action}"]`);
  const keys = {
    j: () => step(1),
    k: () => step(-1),
    a: () => form("approve") && form("approve").requestSubmit(),
    r: () => form("reject") && form("reject").querySelector("input[name=reason]").focus(),
    e: () => current && current.querySelector("a.edit").click(),
    u: undo,
    "/": () => { location.href = "/search"; },
  };
  if (Object.hasOwn(keys, event.key)) {
    event.preventDefault();
    keys[event.key]();
  }
});
