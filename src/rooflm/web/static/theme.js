// Before the first paint: the theme that was chosen.
document.documentElement.dataset.theme = localStorage.getItem("theme") || "auto";
