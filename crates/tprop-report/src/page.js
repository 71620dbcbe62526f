"use strict";
// Values of plots are read by pointing at them: the nearest ones are marked and their words stand beside the pointer.
(() => {
  const readout = document.getElementById("readout");
  const REACH = 28; // pixels from the pointer to a value
  const SAME = 7; // pixels between values that cannot be told apart
  const MOST = 6; // values at once
  const tips = new WeakMap();
  for (const point of document.querySelectorAll(".plot .pt")) {
    const title = point.querySelector("title");
    tips.set(point, title.textContent);
    title.remove(); // or the browser would show a second one
    point.setAttribute("aria-label", title.textContent);
  }
  let near = [];
  const leave = () => {
    for (const point of near) point.classList.remove("near");
    near = [];
    readout.hidden = true;
  };
  const show = (points, x, y) => {
    if (points.length !== near.length || points.some((p, i) => p !== near[i])) {
      leave();
      near = points;
      for (const point of near) point.classList.add("near");
      readout.textContent = near.map(p => tips.get(p)).join("\n");
      readout.hidden = false;
    }
    const box = readout.getBoundingClientRect();
    const left = Math.min(x + 14, innerWidth - box.width - 6);
    const top = y + 16 + box.height > innerHeight ? y - box.height - 12 : y + 16;
    readout.style.left = Math.max(6, left) + "px";
    readout.style.top = Math.max(6, top) + "px";
  };
  const nearest = (plot, x, y) => {
    const places = [];
    for (const point of plot.querySelectorAll("circle.pt")) {
      const box = point.getBoundingClientRect();
      const at = { point, x: box.x + box.width / 2, y: box.y + box.height / 2 };
      at.far = Math.hypot(at.x - x, at.y - y);
      if (at.far < REACH) places.push(at);
    }
    places.sort((a, b) => a.far - b.far);
    const first = places[0];
    return places.filter(p => Math.hypot(p.x - first.x, p.y - first.y) < SAME).slice(0, MOST).map(p => p.point);
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
    const points = nearest(plot, event.clientX, event.clientY);
    if (points.length === 0 && tips.has(target)) points.push(target); // a cell, or a line of parallel coordinates
    if (points.length > 0) show(points, event.clientX, event.clientY); else leave();
  };
  addEventListener("pointermove", look);
  addEventListener("pointerdown", look);
  addEventListener("scroll", leave, { passive: true });
  // A finger that is lifted leaves too, but what it touched should stay to be read.
  document.documentElement.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") leave(); });
  for (const plot of document.querySelectorAll(".plot")) plot.addEventListener("pointerleave", () => light(plot, null));
  addEventListener("beforeprint", () => { for (const fold of document.querySelectorAll("details")) fold.open = true; });
})();
