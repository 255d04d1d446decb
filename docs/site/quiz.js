// Quizzes to type answers into. The page has questions and folded answers; book.py adds, for each question, the numbers that count as right,
// and where its run is in the playground. Progress stays in this browser.
"use strict";
addEventListener("DOMContentLoaded", () => {
  const script = document.getElementById("quiz-data");
  if (!script) return;
  const make = (tag, properties, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };
  const KEY = "flash-steps quizzes";
  let done = {};
  try {
    done = JSON.parse(localStorage.getItem(KEY)) ?? {};
  } catch {} // nothing is kept, or nothing can be
  const questions = [];

  const keep = (id, what) => {
    done[id] = what;
    try {
      localStorage.setItem(KEY, JSON.stringify(done));
    } catch {}
    count();
  };

  /** The numbers in a text: 65,536 is one. */
  const numbers = (text) => (text.replace(/(\d)[,' ](?=\d{3}(?!\d))/g, "$1").match(/\d+(\.\d+)?/g) ?? []).map(Number);
  const near = (typed, wanted, rough) => (rough ? typed > 0 && Math.abs(Math.log10(typed / wanted)) <= 0.5 : typed === wanted);

  function question(id, item, answer, { numbers: wanted, rough, run }) {
    const field = make("input", { type: "text", autocomplete: "off" });
    field.setAttribute("aria-label", "Your answer");
    const verdict = make("div", { className: "told" }), form = make("form", { className: "quiz" }, field, make("button", {}, wanted ? "Check" : "Compare"));
    verdict.setAttribute("role", "status");

    const tell = () => {
      const { typed, right } = done[id];
      field.value = typed;
      const title = right === undefined ? "The answer:" : right ? "Right." : "Wrong.";
      verdict.className = `told ${right === undefined ? "" : right ? "right" : "wrong"}`;
      verdict.replaceChildren(make("strong", {}, title), " ", ...answer.cloneNode(true).childNodes);
      if (run) verdict.append(" ", make("a", { href: run, target: "_blank" }, "Run it"));
      if (!wanted && right === undefined) {
        verdict.append(make("div", {}, ...[["I had it", true], ["I had not", false]].map(([text, right]) =>
          make("button", { type: "button", onclick: () => { keep(id, { typed, right }); tell(); } }, text))));
      }
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const typed = field.value.trim(), said = numbers(typed);
      if (!typed) return field.focus();
      keep(id, wanted ? { typed, right: said.length === wanted.length && wanted.every((n, at) => near(said[at], n, rough)) } : { typed });
      tell();
    });
    item.append(form, verdict);
    questions.push(id);
    if (done[id]) tell();
  }

  const summary = make("p", {}), bar = make("div", { className: "quiz-progress" }, summary);
  const count = () => {
    const right = questions.filter((id) => done[id]?.right).length, answered = questions.filter((id) => done[id]).length;
    summary.textContent = `${right} of ${questions.length} right, ${answered} answered. Your answers stay in this browser.`;
  };
  bar.append(make("button", { type: "button", onclick: () => {
    const url = URL.createObjectURL(new Blob([JSON.stringify(done, null, 2) + "\n"], { type: "application/json" }));
    make("a", { href: url, download: "quizzes.json" }).click();
    URL.revokeObjectURL(url);
  } }, "Export as JSON"), make("button", { type: "button", onclick: () => {
    if (!confirm("Forget all your answers?")) return;
    try {
      localStorage.removeItem(KEY);
    } catch {}
    location.reload();
  } }, "Forget"));

  const chapters = Object.entries(JSON.parse(script.textContent));
  for (const [at, answers] of [...document.querySelectorAll("article section details > ol")].entries()) {
    const [chapter, wanted] = chapters[at], asked = answers.parentElement.parentElement.querySelector(":scope > ol");
    [...asked.children].forEach((item, n) => question(`${chapter} ${n + 1}`, item, answers.children[n].querySelector("p") ?? answers.children[n], wanted[n]));
  }
  document.querySelector("article h1").after(bar);
  count();
});
