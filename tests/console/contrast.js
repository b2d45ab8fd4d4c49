// The texts of a page whose contrast is below WCAG's AA, as `ratio text`; what has a background of its own says so.
() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parsed = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = ([red, green, blue]) => {
    const [r, g, b] = [red, green, blue].map((part) => {
      const value = part / 255;
      return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let node = element; node; node = node.parentElement) {
      const color = parsed(getComputedStyle(node).backgroundColor);
      if (color[3] === 255) return color;
    }
    return [255, 255, 255];
  };
  const ratio = (one, other) => {
    const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a);
    return (light + 0.05) / (dark + 0.05);
  };
  const poor = [];
  let checked = 0;
  for (const element of document.querySelectorAll("body *")) {
    const style = getComputedStyle(element);
    const box = element.getBoundingClientRect();
    if (box.width < 2 || style.visibility === "hidden" || element.disabled) continue;
    const own = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
    const back = behind(element);
    if (own) {
      checked += 1;
      const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
      const found = ratio(parsed(style.color), back);
      if (found < (large ? 3 : 4.5)) poor.push(`${found.toFixed(2)} ${element.textContent.slice(0, 40)}`);
    }
    if (element.matches("input, select, button")) {
      const edge = ratio(parsed(style.borderTopColor), behind(element.parentElement));
      if (edge < 3) poor.push(`${edge.toFixed(2)} edge of ${element.name || element.textContent}`);
    }
  }
  const focus = ratio(parsed(getComputedStyle(document.documentElement).getPropertyValue("--focus")), behind(document.body));
  if (focus < 3) poor.push(`${focus.toFixed(2)} focus`);
  return { checked, poor };
}
