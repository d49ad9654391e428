"use strict";
document.documentElement.className = "js";
for (const section of document.querySelectorAll("section")) {
  const rows = [...section.querySelectorAll("tbody tr")];
  const total = Number(section.dataset.total);
  const level = row => Number(row.dataset.level);
  const show = () => {
    let hidden = Infinity;
    for (const row of rows) {
      row.hidden = level(row) > hidden;
      if (!row.hidden) hidden = row.classList.contains("closed") ? level(row) : Infinity;
    }
  };
  const zoom = (from, to) => {
    const span = Math.max(to - from, 0.001);
    for (const row of rows) {
      const bar = row.querySelector("i");
      const start = (Number(row.dataset.start) - from) / span, width = Number(row.dataset.total) / span;
      bar.style.left = 100 * start + "%";
      bar.style.width = 100 * width + "%";
      bar.style.display = start > 1 || start + width < 0 ? "none" : "";
    }
    const marks = [...section.querySelectorAll(".axis span")];
    marks.forEach((mark, i) => { mark.textContent = (from + span * i / (marks.length - 1)).toFixed(span < 4 ? 2 : 1); });
  };
  const close = which => {
    for (const row of rows) row.classList.toggle("closed", which(row) && row.querySelector(".t") !== null);
    for (const row of rows) row.querySelector(".t")?.setAttribute("aria-expanded", !row.classList.contains("closed"));
    show();
  };
  section.addEventListener("click", event => {
    const row = event.target.closest("tbody tr");
    if (event.target.matches(".t")) {
      row.classList.toggle("closed");
      event.target.setAttribute("aria-expanded", !row.classList.contains("closed"));
      show();
    } else if (event.target.closest(".lane")) {
      const start = Number(row.dataset.start);
      zoom(start, start + Number(row.dataset.total));
    } else if (event.target.matches("button[data-do]")) {
      ({ all: () => close(() => false),
         plugins: () => close(row => /plugin|delegate/.test(row.className)),
         reset: () => zoom(0, total) })[event.target.dataset.do]();
    }
  });
  document.addEventListener("keydown", event => { if (event.key === "Escape") zoom(0, total); });
}
