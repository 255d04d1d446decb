// What walk.py asks a picture that stands alone: which of its texts leave it. A text's box is higher than its letters.
() => {
  const picture = document.documentElement.getBoundingClientRect();
  const isCut = ({ left, right, top, bottom }) =>
    left < picture.left - 1 || right > picture.right + 1 || top < picture.top - 3 || bottom > picture.bottom + 3;
  const cut = [...document.querySelectorAll("text")].filter((text) => isCut(text.getBoundingClientRect()));
  return cut.map((text) => text.textContent.trim().slice(0, 60));
}
