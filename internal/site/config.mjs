import { readFileSync } from 'node:fs'

const list = JSON.parse(readFileSync(new URL('./list.json', import.meta.url)))

export default {
	title: 'Kagzi',
	description: 'Durable workflows in Go on the Postgres that you have. A library, no server.',
	base: process.env.KAGZI_SITE_BASE || '/',
	outDir: process.env.KAGZI_SITE_OUT,
	themeConfig: {
		outline: [2, 3],
		sidebar: list,
		search: { provider: 'local' },
		socialLinks: [{ icon: 'github', link: 'https://github.com/kagzi/kagzi' }],
	},
	markdown: {
		html: false, // <ID> in a text is text
		anchor: {
			// as the repository's pages have them
			slugify: (s) => s.trim().toLowerCase().replace(/[^\p{L}\p{N}\p{M}\s_-]/gu, '').replace(/\s/g, '-'),
		},
	},
}
