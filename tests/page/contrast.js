// Texts whose contrast with what is behind them is below 4.5 to 1, as WCAG AA counts it.
() => {
  const parts = (color) => {
    const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    context.fillStyle = color; context.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const over = (top, under) => top.slice(0, 3).map((v, i) => v * top[3] + under[i] * (1 - top[3]));
  const weak = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    const box = element.getBoundingClientRect();
    if (!own || box.width < 2 || getComputedStyle(element).visibility === "hidden") continue;
    const layers = []; let seen = 1;
    for (let at = element; at; at = at.parentElement) {
      const style = getComputedStyle(at);
      seen *= Number(style.opacity);
      layers.push(parts(style.backgroundColor));
    }
    if (seen < 0.2) continue; // a control that shows itself when it is pointed at
    let behind = [255, 255, 255];
    for (const layer of layers.reverse()) behind = over(layer, behind);
    const style = getComputedStyle(element);
    const ink = parts(element instanceof SVGElement ? style.fill : style.color);
    ink[3] *= seen;
    const [a, b] = [light(over(ink, behind)), light(behind)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const kind = element.className?.baseVal ?? element.className;
    if (ratio < 4.5) weak.push(`${element.tagName}.${kind} ${element.textContent.slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return weak;
}
