// Changes: forms in the dialog, JSON that is checked while it is typed, menus, and changes of many runs that the page continues.
// Without this script the forms are pages, and each step of a change of many runs is a click.
(() => {
	"use strict";
	const $ = (selector, root = document) => root.querySelector(selector);
	const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
	const dialog = $("#dialog");

	// ---- a form is sent once, and its errors come back into the dialog ----

	function busy(form, on) {
		for (const b of $$("button:not([type=button])", form)) b.disabled = on;
		form.classList.toggle("busy", on);
	}

	document.addEventListener("submit", (e) => {
		const form = e.target;
		if (e.defaultPrevented || form.method !== "post") return;
		const wrong = $$("[data-json]", form).find((el) => !check(el));
		if (wrong) {
			e.preventDefault();
			wrong.focus();
			return;
		}
		if (!dialog.contains(form)) return;
		e.preventDefault();
		busy(form, true);
		const values = Object.fromEntries([...new Set(new FormData(form).keys())].map((name) => {
			const all = new FormData(form).getAll(name);
			return [name, all.length > 1 ? all : all[0]];
		}));
		htmx.ajax("POST", form.action, { target: "#dialog-body", select: "#main > *:not(#notices)", swap: "innerHTML", values })
			.then(() => {
				dialog.scrollTo(0, 0);
				$("input:not([type=hidden]), textarea, select, .actions .button", dialog)?.focus({ preventScroll: true });
			})
			.finally(() => busy(form, false));
	});

	document.addEventListener("htmx:sendError", () => {
		const form = $("form.change", dialog.open ? dialog : document);
		if (!form || $(".unsent", form)) return;
		const p = document.createElement("p");
		p.className = "notice bad unsent";
		p.setAttribute("role", "alert");
		p.textContent = "No connection to the program. What you asked for may have been done or not: send the form again, it is done at most once.";
		form.prepend(p);
		form.classList.add("stuck");
		busy(form, false);
	});

	// ---- JSON ----

	function check(el) {
		const says = $(`[data-json-says="${el.id}"]`);
		let text = "";
		if (el.value.trim()) {
			try {
				JSON.parse(el.value);
			} catch (e) {
				text = `No JSON: ${e.message}`;
			}
		}
		if (says && says.textContent !== text) says.textContent = text;
		el.setAttribute("aria-invalid", String(text !== ""));
		return text === "";
	}

	document.addEventListener("input", (e) => e.target.matches("[data-json]") && check(e.target));

	// ---- menus ----

	document.addEventListener("click", (e) => {
		for (const menu of $$("details.more[open]")) if (!menu.contains(e.target) || e.target.closest("a, button")) menu.open = false;
		if (e.target === dialog) { // the backdrop, if nothing would be lost
			const box = dialog.getBoundingClientRect();
			const outside = e.clientX < box.left || e.clientX > box.right || e.clientY < box.top || e.clientY > box.bottom;
			if (outside && !$$("input:not([type=hidden]):not([type=checkbox]), textarea", dialog).some((el) => el.value !== el.defaultValue)) dialog.close();
		}
	});

	document.addEventListener("keydown", (e) => {
		if (e.key !== "Escape") return;
		for (const menu of $$("details.more[open]")) {
			menu.open = false;
			$("summary", menu).focus();
		}
	});

	// ---- many runs: the page sends what is left until nothing is, or somebody stops it ----

	let stopping = false;

	document.addEventListener("click", (e) => {
		const stop = e.target.closest("[data-stop]");
		if (!stop || stop.form.classList.contains("stuck")) return;
		e.preventDefault();
		stopping = true;
		stop.disabled = true;
		stop.textContent = "Stopping…";
	});

	function goOn() {
		const form = $("form[data-go]");
		if (!form || form.dataset.sent) return;
		form.dataset.sent = "1";
		if (stopping) {
			const stop = document.createElement("input");
			Object.assign(stop, { type: "hidden", name: "stop", value: "1" });
			form.append(stop);
			stopping = false;
		}
		htmx.trigger(form, "go");
	}

	document.addEventListener("htmx:afterSettle", goOn);
	goOn();
})();
