// Changes to Sphinx's search page: a question matches titles and terms without its stop words, excerpts render formulas and need no server.
document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined") return;
  const { _parseQuery, makeSearchSummary } = Search;
  Search._parseQuery = (query) => {
    const [, ...terms] = _parseQuery(query);
    return [[...terms[2]].join(" ").replace(/s$/, "") || query, ...terms];
  };
  Search.makeSearchSummary = (...page) => {
    const summary = makeSearchSummary(...page);
    if (summary) renderMathInElement(summary, katex_options);
    return summary;
  };
  if (location.protocol !== "file:") return;
  const script = document.head.appendChild(document.createElement("script"));
  script.src = "_static/texts.js";
  const loaded = new Promise((resolve) => (script.onload = resolve));
  window.fetch = async (url) => ({ text: () => loaded.then(() => TEXTS[url.replace(/^\.\//, "")]) });
});
