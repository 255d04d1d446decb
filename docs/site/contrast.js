// The texts of a page that are hard to tell from what is behind them: a contrast below 4.5, below 3 for large ones (WCAG 2, level AA).
() => {
  const rgba = (color) => {
    const [r, g, b, a = 1] = color.match(/[\d.]+/g).map(Number);
    return [r, g, b, a];
  };
  const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a), 1];
  const known = new Map([[null, [255, 255, 255, 1]]]);
  const behind = (element) => {
    if (!known.has(element)) {
      const color = rgba(getComputedStyle(element).backgroundColor);
      known.set(element, color[3] === 1 ? color : over(color, behind(element.parentElement)));
    }
    return known.get(element);
  };
  const luminance = (color) => {
    const [r, g, b] = color.slice(0, 3).map((c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = new Map();
  const seen = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || seen.has(element) || element.closest(".katex *")) continue;
    if (!element.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    seen.add(element);
    const style = getComputedStyle(element);
    const background = behind(element);
    const [light, dark] = [luminance(background), luminance(over(rgba(style.color), background))].sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) {
      const text = walker.currentNode.data.trim().slice(0, 40);
      found.set(`${style.color} ${element.className}`, `${ratio.toFixed(1)} of '${text}' (class "${element.className}", ${style.color})`);
    }
  }
  return [...found.values()];
}
