"use strict";
// Values of plots are read by pointing at them: the nearest one is marked and its words stand beside the pointer.
(() => {
  const readout = document.getElementById("readout");
  const REACH = 28; // pixels
  const tips = new WeakMap();
  for (const point of document.querySelectorAll(".plot .pt")) {
    const title = point.querySelector("title");
    tips.set(point, title.textContent);
    title.remove(); // or the browser would show a second one
    point.setAttribute("aria-label", title.textContent);
  }
  let near = null;
  const leave = () => {
    if (near) near.classList.remove("near");
    near = null;
    readout.hidden = true;
  };
  const show = (point, x, y) => {
    if (near !== point) {
      leave();
      near = point;
      point.classList.add("near");
      readout.textContent = tips.get(point);
      readout.hidden = false;
    }
    const box = readout.getBoundingClientRect();
    const left = Math.min(x + 14, innerWidth - box.width - 6);
    const top = y + 16 + box.height > innerHeight ? y - box.height - 12 : y + 16;
    readout.style.left = Math.max(6, left) + "px";
    readout.style.top = Math.max(6, top) + "px";
  };
  const nearest = (plot, x, y) => {
    let best = null, least = REACH * REACH;
    for (const point of plot.querySelectorAll("circle.pt")) {
      const box = point.getBoundingClientRect();
      const dx = box.x + box.width / 2 - x, dy = box.y + box.height / 2 - y;
      const far = dx * dx + dy * dy;
      if (far < least) { best = point; least = far; }
    }
    return best;
  };
  const light = (plot, series) => {
    plot.classList.toggle("busy", series !== null);
    for (const one of plot.querySelectorAll(".series")) one.classList.toggle("on", series !== null && one.dataset.s === series);
  };
  const look = (event) => {
    const target = event.target instanceof Element ? event.target : null;
    const plot = target && target.closest(".plot");
    if (!plot) return leave();
    const named = target.closest("text.name");
    const group = named && named.closest(".series");
    light(plot, group ? group.dataset.s : null);
    const point = tips.has(target) ? target : nearest(plot, event.clientX, event.clientY);
    if (point) show(point, event.clientX, event.clientY); else leave();
  };
  addEventListener("pointermove", look);
  addEventListener("pointerdown", look);
  addEventListener("scroll", leave, { passive: true });
  document.documentElement.addEventListener("pointerleave", leave);
  for (const plot of document.querySelectorAll(".plot")) plot.addEventListener("pointerleave", () => light(plot, null));
  addEventListener("beforeprint", () => { for (const fold of document.querySelectorAll("details")) fold.open = true; });
})();
