// links.mjs DIR follows the links of the built site in DIR, and lists those that lead nowhere.
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { join, posix } from 'node:path'

const site = process.argv[2]
const pages = readdirSync(site, { recursive: true }).filter((name) => name.endsWith('.html'))
const texts = new Map(pages.map((name) => [name, readFileSync(join(site, name), 'utf8')]))

// file returns the file of a path of the site, or undefined.
const file = (path) =>
  [path, `${path}.html`, posix.join(path, 'index.html')].find((name) => /\.\w+$/.test(name) && existsSync(join(site, name)))

let dead = 0
for (const [page, text] of texts) {
  for (const [, href] of text.matchAll(/<a [^>]*href="([^"]*)"/g)) {
    if (/^[a-z]+:/.test(href)) continue
    const [path, anchor] = href.replaceAll('&amp;', '&').split('#')
    const target = path === '' ? page : file(posix.join(path.startsWith('/') ? '' : posix.dirname(page), path))
    const found = target && (!anchor || texts.get(target)?.includes(`id="${decodeURIComponent(anchor)}"`))
    if (!found) {
      console.error(`${page}: dead link ${href}`)
      dead++
    }
  }
}
console.log(`${pages.length} pages, ${dead} dead links`)
process.exitCode = dead ? 1 : 0
