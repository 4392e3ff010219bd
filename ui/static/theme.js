// Runs before the first paint, so that no page flashes in the other theme or in the other time zone.
(() => {
	const root = document.documentElement;
	root.classList.add("js");
	try {
		const theme = localStorage.getItem("kagzi-theme");
		if (theme === "light" || theme === "dark") root.dataset.theme = theme;
		if (localStorage.getItem("kagzi-zone") === "utc") root.dataset.zone = "utc";
	} catch {
		// without storage the system decides
	}
})();
