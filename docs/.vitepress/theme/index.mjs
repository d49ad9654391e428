import DefaultTheme from 'vitepress/theme'
import './style.css'

// commands returns the commands in the text of a console block, without prompts and output.
function commands(text) {
  const list = []
  let continued = false
  for (const line of text.split('\n')) {
    const command = continued ? line.replace(/^> ?/, '') : line.match(/^\$ (.*)$/)?.[1]
    if (command === undefined) continue
    list.push(command)
    continued = command.endsWith('\\')
  }
  return list.join('\n') + '\n'
}

// copyCommands makes the button of a console block copy its commands only.
function copyCommands(event) {
  const block = event.target.closest?.('.language-console > button.copy')?.parentElement
  if (!block) return
  event.stopPropagation()
  navigator.clipboard.writeText(commands(block.querySelector('code').innerText)).then(() => {
    event.target.classList.add('copied')
    setTimeout(() => event.target.classList.remove('copied'), 2000)
  })
}

export default {
  extends: DefaultTheme,
  enhanceApp() {
    if (typeof window !== 'undefined') window.addEventListener('click', copyCommands, { capture: true })
  },
}
