// The theme, light or dark: the system's until the user chooses. A classic script, so
// that the choice applies before the first drawing.
"use strict";

{
  const KEY = "outrigger.theme";
  const NAMES = { auto: "Theme: system", light: "Theme: light", dark: "Theme: dark" };
  const order = Object.keys(NAMES);

  // If storage is forbidden, the choice lasts as long as the page.
  const stored = () => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null;
    }
  };
  const store = (theme) => {
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      return;
    }
  };

  let theme = order.includes(stored()) ? stored() : "auto";
  const apply = () => {
    document.documentElement.dataset.theme = theme;
  };
  apply();

  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const label = () => {
      button.textContent = { auto: "◐", light: "☀", dark: "☾" }[theme];
      button.setAttribute("aria-label", NAMES[theme]);
      button.title = NAMES[theme];
    };
    button.addEventListener("click", () => {
      theme = order[(order.indexOf(theme) + 1) % order.length];
      store(theme);
      apply();
      label();
    });
    label();
  });
}
