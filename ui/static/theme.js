// Runs before the first paint, so that no page flashes in the other theme.
(() => {
	const root = document.documentElement;
	root.classList.add("js");
	try {
		const theme = localStorage.getItem("kagzi-theme");
		if (theme === "light" || theme === "dark") root.dataset.theme = theme;
	} catch {
		// without storage the system decides
	}
})();
