// The page of a run: its timeline is zoomed by dragging and by keys, and its links change a part of the page and keep what is unfolded.
(() => {
	"use strict";
	const $ = (selector, root = document) => root.querySelector(selector);
	const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

	// ---- links within the page: what is unfolded, scrolled or focused stays ----

	let visits = 0;

	async function visit(url, push) {
		const mine = ++visits;
		try {
			const answer = await fetch(url, { headers: { Accept: "text/html" } });
			const next = new DOMParser().parseFromString(await answer.text(), "text/html");
			if (mine !== visits) return;
			if (!answer.ok || !$("#timeline", next)) throw new Error(answer.statusText);
			if (push) history.pushState({ run: true }, "", url);
			for (const region of $$("[data-live]", next)) window.kagzi.update(region.outerHTML);
			axes();
			window.kagzi.reopen();
			const id = decodeURIComponent(new URL(url, location.href).hash.slice(1));
			if (id) document.getElementById(id)?.scrollIntoView({ block: "center" });
		} catch {
			location.href = url;
		}
	}

	document.addEventListener("click", (e) => {
		const copy = e.target.closest("[data-copy]");
		if (copy) {
			navigator.clipboard?.writeText(copy.dataset.copy).then(() => {
				copy.classList.add("done");
				copy.title = "Copied";
				setTimeout(() => copy.classList.remove("done"), 1500);
			});
			return;
		}
		const link = e.target.closest("a");
		if (!link?.closest("[data-morph]") || e.ctrlKey || e.metaKey || e.shiftKey || e.button) return;
		e.preventDefault();
		visit(link.href, true);
	});

	document.addEventListener("submit", (e) => {
		if (!e.target.matches("form[data-morph-form]")) return;
		e.preventDefault();
		const values = new URLSearchParams(new FormData(e.target));
		for (const [name, value] of [...values]) if (!value) values.delete(name);
		visit(location.pathname + (values.size ? "?" + values : ""), true);
	});

	document.addEventListener("change", (e) => {
		if (e.target.matches("form[data-morph-form] select")) e.target.form.requestSubmit();
	});

	addEventListener("popstate", () => $("#timeline") && visit(location.href, false));

	document.addEventListener("keydown", (e) => {
		if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, textarea, select, dialog")) return;
		const key = e.key === "=" ? "+" : e.key;
		const link = $(`a[data-key="${CSS.escape(key)}"]`);
		if (!link) return;
		e.preventDefault();
		visit(link.href, true);
	});

	// ---- dragging over the timeline ----

	const svg = (name, attributes) => {
		const el = document.createElementNS("http://www.w3.org/2000/svg", name);
		for (const [k, v] of Object.entries(attributes)) el.setAttribute(k, v);
		return el;
	};

	// moment returns the time at a percentage of the axis.
	function moment(segments, x) {
		for (const [x0, x1, from, to] of segments) if (x <= x1) return from + (to - from) * Math.max(0, x - x0) / Math.max(x1 - x0, 1e-9);
		return segments.at(-1)[3];
	}

	function iso(ms) { // with microseconds
		const whole = Math.floor(ms);
		return new Date(whole).toISOString().replace("Z", String(Math.round((ms - whole) * 1000)).padStart(3, "0") + "Z");
	}

	let drag;
	document.addEventListener("pointerdown", (e) => {
		const on = e.target.closest("#gantt svg.track, #gantt svg.axis");
		if (!on || e.button || e.pointerType === "touch") return;
		const grid = $("#gantt .grid"), box = grid.getBoundingClientRect();
		const at = (event) => Math.min(100, Math.max(0, (event.clientX - box.left) / box.width * 100));
		drag = { start: at(e), at, rect: svg("rect", { class: "drag-box", y: 0, height: "100%" }), grid };
		e.preventDefault();
	});
	document.addEventListener("pointermove", (e) => {
		if (!drag) return;
		const x = drag.at(e), from = Math.min(x, drag.start), width = Math.abs(x - drag.start);
		if (!drag.rect.isConnected) $("#gantt .grid")?.append(drag.rect);
		drag.rect.setAttribute("x", `${from}%`);
		drag.rect.setAttribute("width", `${width}%`);
	});
	document.addEventListener("pointerup", (e) => {
		if (!drag) return;
		const { start, at, rect } = drag, end = at(e), gantt = $("#gantt");
		drag = undefined;
		rect.remove();
		if (!gantt || Math.abs(end - start) < 0.7) return;
		const segments = JSON.parse(gantt.dataset.scale);
		const url = new URL(gantt.dataset.base, location.href);
		url.searchParams.set("from", iso(moment(segments, Math.min(start, end))));
		url.searchParams.set("to", iso(moment(segments, Math.max(start, end))));
		visit(url.href, true);
	});
	document.addEventListener("keyup", (e) => {
		if (e.key === "Escape" && drag) {
			drag.rect.remove();
			drag = undefined;
		}
	});

	// ---- the labels of the axis in the viewer's zone ----

	let date, shortDate, minute, second, millisecond;

	function formats() {
		const of = (options) => new Intl.DateTimeFormat(undefined, { ...options, timeZone: window.kagzi.zone() });
		const time = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
		date = of({ day: "numeric", month: "short", year: "numeric" });
		shortDate = of({ day: "numeric", month: "short" });
		minute = of(time);
		second = of({ ...time, second: "2-digit" });
		millisecond = of({ ...time, second: "2-digit", fractionalSecondDigits: 3 });
	}

	function label(at, every) {
		if (every === "date") return date.format(at);
		const us = Number(every);
		if (us >= 864e8) return shortDate.format(at);
		if (us >= 6e7) return minute.format(at);
		if (us >= 1e6 || us === 0) return second.format(at);
		return us >= 1000 ? millisecond.format(at) : undefined;
	}

	function axes() {
		for (const text of $$(".gantt text[data-at]")) {
			const shown = label(Date.parse(text.dataset.at), text.dataset.every);
			if (shown && text.textContent !== shown) text.textContent = shown;
		}
	}

	document.addEventListener("kagzi:updated", axes);
	document.addEventListener("kagzi:zone", () => {
		formats();
		axes();
	});
	formats();
	axes();
})();
