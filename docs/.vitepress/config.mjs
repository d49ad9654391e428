import { existsSync, readdirSync } from 'node:fs'
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

// outside leads links to files that are not pages, such as sources and schemas, to the repository.
function outside(md) {
  const render = md.renderer.rules.link_open ?? ((tokens, i, options, env, self) => self.renderToken(tokens, i, options))
  md.renderer.rules.link_open = (tokens, i, options, env, self) => {
    const href = tokens[i].attrGet('href')
    if (href && !/^([a-z]+:|#|\/)/.test(href) && env.relativePath) {
      const [path] = href.split('#')
      const file = posix.join('docs', posix.dirname(env.relativePath), path)
      if (!file.startsWith('docs/') || !file.endsWith('.md')) {
        if (!existsSync(new URL('../' + file, docs))) {
          throw new Error(`${env.relativePath}: dead link ${href}`)
        }
        if (!existsSync(new URL('../' + file + '/README.md', docs)) || !file.startsWith('docs/')) {
          tokens[i].attrSet('href', `${repository}/blob/main/${file}`)
        }
      }
    }
    return render(tokens, i, options, env, self)
  }
}

export default withMermaid({
  title: 'Tenon',
  description: 'The Container Network Interface, end to end, in Go',
  outDir: '../bin/site',
  cacheDir: '../bin/site-cache',
  srcExclude: ['node_modules/**'],
  cleanUrls: true,
  lastUpdated: true,
  rewrites: { 'README.md': 'index.md', ':directory/README.md': ':directory/index.md' },
  markdown: { config: outside },
  themeConfig: {
    search: { provider: 'local' },
    outline: [2, 3],
    socialLinks: [{ icon: 'github', link: repository }],
    sidebar: [
      {
        text: 'Operators',
        items: [
          { text: 'Install', link: '/install' },
          { text: 'Getting started', link: '/getting-started' },
          { text: 'Operating', link: '/operating' },
          { text: 'Kubernetes', link: '/kubernetes' },
          { text: 'Migration', link: '/migration' },
          { text: 'Troubleshooting', link: '/troubleshooting' },
          { text: 'Compatibility', link: '/compatibility' },
          { text: 'Choice of the backend', link: '/nat-backend' },
          { text: 'Performance', link: '/performance' },
          { text: 'Security', link: '/security' },
          { text: 'Kernel notes', link: '/kernel' },
          { text: 'Versions', link: '/versions' },
        ],
      },
      { text: 'Plugins', collapsed: true, items: pages('plugins') },
      { text: 'Runtime developers', items: [{ text: 'Embedding', link: '/embedding' }] },
      {
        text: 'Plugin authors',
        items: [
          { text: 'Writing plugins', link: '/writing-plugins' },
          { text: 'Testing plugins', link: '/testing-plugins' },
        ],
      },
      {
        text: 'Contributors',
        items: [
          { text: 'Architecture', link: '/architecture' },
          { text: 'Glossary', link: '/glossary' },
          { text: 'Releasing', link: '/releasing' },
        ],
      },
      { text: 'Decisions', collapsed: true, items: pages('decisions') },
    ],
  },
})
