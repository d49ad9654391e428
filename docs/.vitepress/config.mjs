import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { posix } from 'node:path'
import { withMermaid } from 'vitepress-plugin-mermaid'

const repository = 'https://github.com/tenon-cni/tenon'
const docs = new URL('../', import.meta.url)

// pages returns the sidebar entries for the pages of a directory below docs.
const pages = (directory) =>
  readdirSync(new URL(directory + '/', docs))
    .filter((name) => name.endsWith('.md') && name !== 'README.md')
    .sort()
    .map((name) => ({ text: name.replace(/\.md$/, ''), link: `/${directory}/${name.replace(/\.md$/, '')}` }))

// sections returns the sidebar: the sections of README.md with the pages in their tables.
function sections() {
  const list = []
  for (const line of readFileSync(new URL('README.md', docs), 'utf8').split('\n')) {
    const heading = line.match(/^## (.*)$/)
    if (heading) list.push({ text: heading[1], items: [] })
    for (const [, text, page] of line.matchAll(/\[([^\]]+)\]\(([^)#]+)\.md\)/g)) {
      const directory = page.match(/^(.*)\/README$/)?.[1]
      list.at(-1).items.push(
        directory
          ? { text, link: `/${directory}/`, collapsed: true, items: pages(directory) }
          : { text, link: `/${page}` },
      )
    }
  }
  return list
}

// version is the state of the sources, such as v1.2.0 or v1.2.0-3-g1234567.
function version() {
  try {
    return execFileSync('git', ['describe', '--tags', '--always'], { encoding: 'utf8' }).trim()
  } catch {
    return 'unknown version'
  }
}

// outside leads links to files that are not pages, such as sources and schemas, to the repository.
function outside(md) {
  const render = md.renderer.rules.link_open ?? ((tokens, i, options, env, self) => self.renderToken(tokens, i, options))
  md.renderer.rules.link_open = (tokens, i, options, env, self) => {
    const href = tokens[i].attrGet('href')
    if (href && !/^([a-z]+:|#|\/)/.test(href) && env.relativePath) {
      const [path, anchor] = href.split('#')
      const file = posix.join('docs', posix.dirname(env.relativePath), path)
      if (!file.startsWith('docs/') || !file.endsWith('.md')) {
        if (!existsSync(new URL('../' + file, docs))) {
          throw new Error(`${env.relativePath}: dead link ${href}`)
        }
        if (!existsSync(new URL('../' + file + '/README.md', docs)) || !file.startsWith('docs/')) {
          tokens[i].attrSet('href', `${repository}/blob/main/${file}`)
        }
      } else if (file.endsWith('/README.md')) {
        const index = file === 'docs/README.md' ? '/documents' : file.slice('docs'.length, -'README.md'.length)
        tokens[i].attrSet('href', index + (anchor ? `#${anchor}` : ''))
      }
    }
    return render(tokens, i, options, env, self)
  }
}

// slug returns the anchor of a heading as forges make it.
const slug = (heading) =>
  heading.toLowerCase().replace(/[^\p{L}\p{N}_ -]/gu, '').replaceAll(' ', '-')

// literal keeps the braces of templates in code: Vue would evaluate them.
function literal(md) {
  const render = md.renderer.rules.code_inline
  md.renderer.rules.code_inline = (tokens, i, options, env, self) => {
    tokens[i].attrSet('v-pre', '')
    return render(tokens, i, options, env, self)
  }
}

export default withMermaid({
  mermaid: { theme: 'neutral' },
  title: 'Tenon',
  description: 'The Container Network Interface, end to end, in Go',
  lang: 'en',
  head: [['link', { rel: 'icon', href: '/logo.svg', type: 'image/svg+xml' }]],
  outDir: '../bin/site',
  cacheDir: '../bin/site-cache',
  srcExclude: ['node_modules/**'],
  cleanUrls: true,
  lastUpdated: true,
  rewrites: { 'README.md': 'documents.md', ':directory/README.md': ':directory/index.md' },
  markdown: {
    anchor: { slugify: slug },
    config: (md) => {
      outside(md)
      literal(md)
    },
  },
  themeConfig: {
    search: { provider: 'local' },
    outline: [2, 3],
    socialLinks: [{ icon: 'github', link: repository }],
    logo: '/logo.svg',
    nav: [
      { text: 'Install', link: '/install' },
      { text: 'Getting started', link: '/getting-started' },
      { text: 'Plugins', link: '/plugins/' },
      { text: 'Embedding', link: '/embedding' },
      { text: 'All pages', link: '/documents' },
    ],
    sidebar: sections(),
    editLink: { pattern: `${repository}/edit/main/docs/:path`, text: 'Edit this page' },
    footer: { message: `Tenon ${version()}, Apache-2.0` },
  },
})
