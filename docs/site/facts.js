// What walk.py asks a page: what of it a reader would stumble over. Returns lists of texts, and its links and anchors.
() => {
  const shorten = (text) => text.trim().replace(/\s+/g, " ").slice(0, 60);
  const classOf = (element) => element.className.baseVal ?? element.className;
  const name = (element) => `<${element.tagName.toLowerCase()} class="${classOf(element)}"> ${shorten(element.textContent)}`;
  const article = document.querySelector("article") ?? document.body;
  // Those of formulas are KaTeX's business.
  const textsOf = (root) => {
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    const found = [];
    while (walker.nextNode()) {
      const text = walker.currentNode;
      if (text.data.trim() && !text.parentElement.closest(".katex")) found.push(text);
    }
    return found;
  };
  const isSeen = (element) => element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const isSmall = (element) => parseFloat(getComputedStyle(element).fontSize) < 11.9 && isSeen(element);

  // Code, tables, formulas and pictures scroll by themselves; Furo would let all of the page do so.
  const scrolls = (element) =>
    !element.matches(".content, body, html") && (getComputedStyle(element).overflowX !== "visible" || scrolls(element.parentElement));
  const isOutside = (element) => element.getBoundingClientRect().right > innerWidth + 1 && !scrolls(element.parentElement);
  const tooWide = [...article.querySelectorAll(":not(.katex *)")].filter(isOutside).map(name);
  if (document.documentElement.scrollWidth > innerWidth) tooWide.push("all of it");

  const rendered = textsOf(article).filter((text) => !text.parentElement.closest("pre, code"));
  return {
    title: document.title,
    tooWide: tooWide.slice(0, 3),
    wrongFormulas: [...document.querySelectorAll(".katex-error")].map((element) => shorten(element.textContent)),
    rawFormulas: rendered.filter((text) => /\$`|`\$|\\(frac|sum|cdot|tag)\b/.test(text.data)).map((text) => shorten(text.data)),
    smallTexts: textsOf(document.body).filter((text) => isSmall(text.parentElement)).map((text) => shorten(text.data)),
    links: [...document.links].map((link) => link.href),
    anchors: [...document.querySelectorAll("[id]")].map((element) => element.id),
    previous: document.querySelector(".prev-page")?.href ?? null,
    next: document.querySelector(".next-page")?.href ?? null,
  };
}
