package invoke

// ExecutableFileExtensions lists the endings that [FindInPath] adds to the name of a plugin, in
// order of preference.
var ExecutableFileExtensions = []string{".exe", ""}
