// The dashboard's own script: times in the viewer's zone, live updates, the chart, dialogs, selection, theme and keys.
// Everything it does is an addition: without it links, forms and pages work.
(() => {
	"use strict";
	const $ = (selector, root = document) => root.querySelector(selector);
	const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

	// ---- times ----

	// zone is the time zone of the page: UTC, or undefined for the browser's own.
	const zone = () => (document.documentElement.dataset.zone === "utc" ? "UTC" : undefined);
	let clock, hourOf, dayOf, exact;

	function useZone() {
		const time = { hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone: zone() }, date = { day: "numeric", month: "short", year: "numeric" };
		clock = new Intl.DateTimeFormat(undefined, { ...date, ...time, second: "2-digit", timeZoneName: "short" });
		hourOf = new Intl.DateTimeFormat(undefined, time);
		dayOf = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short", timeZone: zone() });
		exact = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long", timeZone: zone() });
	}

	// sayZone names the zone on the page.
	function sayZone() {
		const short = clock.formatToParts(Date.now()).find((p) => p.type === "timeZoneName")?.value ?? "";
		const name = clock.resolvedOptions().timeZone, other = zone() ? "those of this browser" : "UTC";
		for (const b of $$("[data-zone-toggle]")) {
			const shown = $(".zone-name", b);
			if (shown) shown.textContent = short;
			b.title = `Times are in ${name}. Change to ${other}.`;
		}
		for (const el of $$("[data-zone]:not(html)")) el.textContent = name === short ? name : `${name} (${short})`;
	}

	function nextZone() {
		const root = document.documentElement;
		if (zone()) delete root.dataset.zone;
		else root.dataset.zone = "utc";
		try {
			if (zone()) localStorage.setItem("kagzi-zone", "utc");
			else localStorage.removeItem("kagzi-zone");
		} catch {
			// it holds for this page
		}
		if ($("ol.days")) return location.reload(); // it was sorted by the days of the other zone
		useZone();
		sayZone();
		showTimes(document);
		redraw();
		document.dispatchEvent(new Event("kagzi:zone"));
	}

	// midnight returns the beginning of the day that comes so many days after today.
	function midnight(days) {
		const now = new Date();
		return zone() ? new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), now.getUTCDate() + days)) :
			new Date(now.getFullYear(), now.getMonth(), now.getDate() + days);
	}

	function span(ms) {
		const s = Math.floor(ms / 1000), m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
		if (s < 60) return `${s} s`;
		if (m < 60) return s % 60 && m < 10 ? `${m} min ${s % 60} s` : `${m} min`;
		if (h < 24) return m % 60 ? `${h} h ${m % 60} min` : `${h} h`;
		return d < 100 && h % 24 ? `${d} d ${h % 24} h` : `${d} d`;
	}

	function distance(at) {
		const ms = Date.now() - at;
		if (Math.abs(ms) < 1000) return "now";
		const far = Math.abs(ms) < 60_000 ? Math.abs(ms) : Math.abs(ms) - Math.abs(ms) % 60_000; // lists need no seconds of minutes
		return ms > 0 ? `${span(far)} ago` : `in ${span(far)}`;
	}

	function showTimes(root) {
		for (const el of $$("time[data-as]", root)) {
			const at = Date.parse(el.dateTime);
			if (Number.isNaN(at)) continue;
			const as = el.dataset.as;
			const text = as === "ago" ? distance(at) : as === "clock" ? span(Math.max(0, Date.now() - at)) : as === "hour" ? hourOf.format(at) : clock.format(at);
			if (el.textContent !== text) el.textContent = text;
			if (as === "time" && el.dataset.ago !== distance(at)) el.dataset.ago = distance(at); // the stylesheet shows it
			const title = as === "time" ? `${distance(at)} · ${el.dateTime}` : `${exact.format(at)} · ${el.dateTime}`;
			if (el.title !== title) el.title = title;
		}
	}

	// The server has sorted a calendar by days in UTC. Those of the viewer are others.
	function showDays(root) {
		for (const list of $$("ol[data-agenda]", root)) {
			const fires = $$(".day li", list);
			list.replaceChildren(...Array.from({ length: Number(list.dataset.agenda) }, (_, n) => {
				const from = midnight(n), until = midnight(n + 1);
				const day = document.createElement("li"), head = document.createElement("h3"), rows = document.createElement("ul");
				head.textContent = n ? dayOf.format(from) : "Today";
				rows.append(...fires.filter((li) => {
					const at = Date.parse($("time", li).dateTime);
					return (at >= from || n === 0) && at < until;
				}));
				day.className = "day";
				day.append(head, rows);
				return day;
			}));
			list.classList.add("days");
			list.removeAttribute("data-agenda");
		}
	}

	// ---- live updates: one stream for the page, closed while the tab is hidden ----

	let stream, retry = 1000, retryTimer;

	function say(state, text) {
		const el = $("#live");
		if (!el) return;
		el.dataset.state = state;
		el.textContent = text;
	}

	function closeStream() {
		clearTimeout(retryTimer);
		stream?.close();
		stream = undefined;
	}

	// present says that the page shows what is now.
	function present() {
		const el = $("#outage");
		if (el) el.hidden = true;
		$("#main")?.classList.remove("stale");
		say("live", "Live");
	}

	function openStream() {
		closeStream();
		const main = $("#main");
		if (document.hidden || !main?.hasAttribute("data-stream")) return;
		const failed = $("[data-away]", main);
		let away = false; // regions that come meanwhile say what was known before
		stream = new EventSource(location.href.split("#")[0]);
		stream.onopen = () => { retry = 1000; };
		stream.onerror = () => {
			say("lost", "No connection to the program. Trying again.");
			main.classList.add("stale");
			closeStream();
			retryTimer = setTimeout(openStream, retry);
			retry = Math.min(retry * 2, 30000);
		};
		stream.addEventListener("region", (e) => {
			if (failed) return location.reload(); // the page itself was an error
			if (!away) present();
			update(e.data);
		});
		stream.addEventListener("outage", (e) => {
			const { since, text } = JSON.parse(e.data);
			away = true;
			say("lost", "No answer from Postgres. Trying again.");
			if (failed) return; // the page itself says so
			main.classList.add("stale");
			const el = $("#outage");
			if (!el) return;
			el.innerHTML = "<strong>Postgres gives no answer</strong> since <time data-as='time'></time>. This page shows what was known then. <span></span>";
			$("time", el).dateTime = since;
			$("span", el).textContent = text;
			showTimes(el);
			el.hidden = false;
		});
		stream.addEventListener("back", () => {
			away = false;
			present();
		});
		stream.addEventListener("settled", () => {
			closeStream();
			say("off", $("#main")?.dataset.rest ?? "");
		});
		stream.addEventListener("gone", (e) => {
			closeStream();
			say("off", e.data);
		});
	}

	// held are regions that came while the viewer had something selected in them, by id.
	const held = new Map();

	function update(html) {
		const next = new DOMParser().parseFromString(html, "text/html").body.firstElementChild;
		const now = next && document.getElementById(next.id);
		if (!now) return;
		if ($("input[name=run]:checked", now)) {
			held.set(next.id, html);
			return;
		}
		held.delete(next.id);
		showDays(next);
		showTimes(next);
		Idiomorph.morph(now, next, {
			morphStyle: "outerHTML",
			ignoreActiveValue: true,
			callbacks: {
				beforeNodeMorphed(old, fresh) {
					if (old.nodeType !== 1) return true;
					if (old.hasAttribute("data-keep")) return false;
					if (old.tagName === "DETAILS") fresh.open = old.open;
					if (old.tagName === "INPUT" && old.type === "checkbox") fresh.toggleAttribute("checked", old.checked);
					return true;
				},
			},
		});
		const region = document.getElementById(next.id);
		htmx.process(region);
		plots(region);
		selection();
		document.dispatchEvent(new Event("kagzi:updated"));
	}

	// ---- the chart, drawn from the table behind it ----

	const charts = new Map();
	const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

	function tableData(table) {
		const rows = $$("tbody tr", table).reverse();
		const columns = $$("thead th", table).length;
		return Array.from({ length: columns }, (_, i) => rows.map((row) =>
			i === 0 ? Number(row.cells[0].dataset.x) : Number(row.cells[i].textContent.replace(/[^0-9.-]/g, ""))));
	}

	function plots(root) {
		for (const el of $$("[data-plot]", root)) {
			const table = document.getElementById(el.dataset.plot);
			if (!table) continue;
			const data = tableData(table);
			const old = charts.get(el);
			if (old) {
				old.setData(data);
				continue;
			}
			charts.set(el, draw(el, table, data));
		}
		for (const [el, chart] of charts) {
			if (el.isConnected) continue;
			chart.destroy();
			charts.delete(el);
		}
	}

	function draw(el, table, data) {
		const minute = (s) => hourOf.format(new Date(s * 1000));
		const axis = { stroke: css("--faint"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
		const series = $$("thead th", table).slice(1).map((th) => ({
			label: th.textContent, stroke: css(th.dataset.colour), width: 1.75, points: { show: false }, value: (u, n, i) => (n ?? u.data[i].reduce((a, b) => a + b, 0)), fill: css(th.dataset.colour) + "14",
		}));
		return new uPlot({
			width: el.clientWidth, height: 190, series: [{ label: "Time", value: (_, s) => (s ? minute(s) : "the whole hour") }, ...series],
			axes: [{ ...axis, space: 70, size: 30, values: (_, splits) => splits.map(minute) }, { ...axis, size: 44, space: 34, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6] }],
			scales: { y: { range: (_, __, max) => [0, Math.max(max, 4) * 1.1] } },
			cursor: { y: false, drag: { x: false, y: false } },
		}, data, el);
	}

	function redraw() {
		for (const [el, chart] of charts) chart.destroy();
		charts.clear();
		plots(document);
	}

	// ---- selection ----

	function selection() {
		for (const form of $$("form[data-select]")) {
			const boxes = $$("input[name=run]", form), chosen = boxes.filter((b) => b.checked).length;
			const all = $("[data-select-all]", form), bulk = $("[data-bulk]", form);
			if (all) {
				all.checked = chosen > 0 && chosen === boxes.length;
				all.indeterminate = chosen > 0 && chosen < boxes.length;
			}
			if (!bulk) continue;
			const every = $("input[name=all]", bulk)?.checked ?? false;
			bulk.classList.toggle("some", chosen > 0 || every);
			$("[data-selected]", bulk).textContent = every ? "All runs that match the filter." : chosen ?
				`${chosen} selected. The list stands still.` : "Select runs to change them.";
			const statuses = boxes.filter((b) => b.checked).map((b) => b.dataset.status);
			for (const b of $$("button", bulk)) {
				const fits = every || statuses.some((s) => (b.dataset.for ?? s).split(" ").includes(s));
				b.disabled = !fits;
				b.title = chosen && !fits ? "It applies to none of the selected runs" : "";
				b.classList.toggle("unfit", Boolean(chosen) && !fits);
			}
		}
		if (!$("form[data-select] input[name=run]:checked")) for (const html of [...held.values()]) update(html);
	}

	// ---- events ----

	document.addEventListener("change", (e) => {
		if (e.target.matches("[data-select-all]"))
			for (const b of $$("input[name=run]", e.target.form)) b.checked = e.target.checked;
		if (e.target.form?.matches("[data-select]")) selection();
	});

	document.addEventListener("click", (e) => {
		const dialog = $("#dialog");
		if (e.target.closest("[data-theme-toggle]")) return nextTheme();
		if (e.target.closest("[data-zone-toggle]")) return nextZone();
		if (dialog.open && e.target.closest("[data-close]")) {
			e.preventDefault();
			return dialog.close();
		}
		if (e.target === dialog) return dialog.close(); // beside it
		const menu = e.target.closest("[data-menu]");
		if (menu) return menu.setAttribute("aria-expanded", String(document.body.classList.toggle("menu-open")));
		const link = e.target.closest("a[data-dialog]");
		if (link && !e.ctrlKey && !e.metaKey && !e.shiftKey) {
			e.preventDefault();
			htmx.ajax("GET", link.href, { target: "#dialog-body", select: "#main > *:not(#notices)", swap: "innerHTML" }).then(() => {
				if (!dialog.open) dialog.showModal();
				shown = performance.now();
				dialog.setAttribute("aria-label", $("h1", dialog)?.textContent ?? "Dialog");
				$("[required], input:not([type=hidden]), textarea, select, .actions .button", dialog)?.focus();
			});
			return;
		}
		const row = e.target.closest("tr[data-href]"); // a convenience: the row has a link, too
		if (row && !e.target.closest("a, button, input, label, summary") && !getSelection().toString()) location.href = row.dataset.href;
	});

	// The Enter that has opened a dialog, held or late, must not send its form: nobody has read it yet.
	let shown = 0;
	for (const kind of ["keydown", "keypress"]) {
		document.addEventListener(kind, (e) => {
			if (e.key === "Enter" && e.target.closest("#dialog[open]") && !e.target.matches("textarea") && (e.repeat || performance.now() - shown < 400)) e.preventDefault();
		});
	}

	document.addEventListener("keydown", (e) => {
		if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, textarea, select")) return;
		const el = $(`[data-hotkey="${CSS.escape(e.key)}"]`);
		if (!el) return;
		e.preventDefault();
		el.focus();
	});

	document.addEventListener("submit", (e) => { // addresses without empty fields
		if (!e.target.matches("form[data-clean]")) return;
		for (const el of e.target.elements) if (el.name && !el.value) el.disabled = true;
	});

	document.addEventListener("htmx:configRequest", (e) => {
		const given = e.detail.parameters;
		if (e.detail.verb === "get") for (const name of Object.keys(given)) if (given[name] === "") delete given[name];
	});

	document.addEventListener("htmx:afterSwap", (e) => { // rows of the page before must not get into this one
		if (e.detail.target.id !== "main") return;
		closeStream();
		held.clear();
	});
	document.addEventListener("htmx:afterSettle", start);
	document.addEventListener("visibilitychange", () => (document.hidden ? closeStream() : openStream()));
	addEventListener("pagehide", closeStream);
	addEventListener("pageshow", (e) => e.persisted && openStream());

	let width = innerWidth;
	addEventListener("resize", () => {
		if (width === innerWidth) return; // a phone's address bar
		width = innerWidth;
		redraw();
	});
	matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

	function nextTheme() {
		const root = document.documentElement;
		const next = { undefined: "light", light: "dark", dark: undefined }[root.dataset.theme];
		if (next) root.dataset.theme = next;
		else delete root.dataset.theme;
		try {
			if (next) localStorage.setItem("kagzi-theme", next);
			else localStorage.removeItem("kagzi-theme");
		} catch {
			// it holds for this page
		}
		for (const b of $$("[data-theme-toggle]")) b.title = `Theme: ${next ?? "as the system"}`;
		redraw();
	}

	// start prepares the page, and again what htmx has put into it.
	function start() {
		sayZone();
		showDays(document);
		showTimes(document);
		plots(document);
		selection();
		openStream();
	}

	window.kagzi = { update, reopen: openStream, zone };
	useZone();
	setInterval(() => showTimes(document), 1000);
	start();
})();
