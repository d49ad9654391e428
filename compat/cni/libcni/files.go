package libcni

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// NotFoundError is the error for a directory with configurations of other networks.
type NotFoundError struct {
	Dir  string
	Name string // of the missing network
}

// Error names the network and the directory.
func (e NotFoundError) Error() string {
	return fmt.Sprintf("no net configuration with name %q in %s", e.Name, e.Dir)
}

// NoConfigsFoundError is the error for a directory without configurations.
type NoConfigsFoundError struct {
	Dir string
}

// Error names the directory.
func (e NoConfigsFoundError) Error() string {
	return "no net configurations found in " + e.Dir
}

// ConfFiles returns the paths of the files in a directory that have one of the extensions, such as
// ".conf", sorted by name. It does not look into subdirectories. It returns nil without an error if
// the directory does not exist.
func ConfFiles(dir string, extensions []string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	paths := []string{}
	for _, e := range entries {
		for _, extension := range extensions {
			if !e.IsDir() && filepath.Ext(e.Name()) == extension {
				paths = append(paths, filepath.Join(dir, e.Name()))
			}
		}
	}
	return paths, nil
}

// ConfFromFile reads the configuration of one plugin. It returns the errors of
// [NetworkPluginConfFromBytes]; a file that cannot be read is named, and its error wrapped.
func ConfFromFile(filename string) (*NetworkConfig, error) {
	b, err := readConf(filename)
	if err != nil {
		return nil, err
	}
	return NetworkPluginConfFromBytes(b)
}

func readConf(filename string) ([]byte, error) {
	b, err := os.ReadFile(filename)
	if err != nil {
		return nil, fmt.Errorf("error reading %s: %w", filename, err)
	}
	return b, nil
}

// ConfListFromFile is the former name of [NetworkConfFromFile].
func ConfListFromFile(filename string) (*NetworkConfigList, error) {
	return NetworkConfFromFile(filename)
}

// NetworkConfFromFile reads the configuration of a network. Unless the list sets
// loadOnlyInlinedPlugins or has no name, it adds the plugins of [NetworkPluginConfsFromFiles] from
// the directory of the file after its own. It returns an error if there are no plugins at all, and
// the errors of [NetworkConfFromBytes] and NetworkPluginConfsFromFiles.
func NetworkConfFromFile(filename string) (*NetworkConfigList, error) {
	b, err := readConf(filename)
	if err != nil {
		return nil, err
	}
	list, err := NetworkConfFromBytes(b)
	if err != nil {
		return nil, err
	}
	if !list.LoadOnlyInlinedPlugins && list.Name != "" {
		plugins, err := NetworkPluginConfsFromFiles(filepath.Dir(filename), list.Name)
		if err != nil {
			return nil, err
		}
		list.Plugins = append(list.Plugins, plugins...)
	}
	if len(list.Plugins) == 0 {
		return nil, errors.New("no plugin configs found")
	}
	return list, nil
}

// NetworkPluginConfsFromFiles reads the plugins of a network that are in files of their own: those
// with the extension .conf in the directory networkConfPath/networkName, sorted by name. There are
// none if the directory does not exist. It returns an error for a directory that cannot be read, a
// name that is a path, and the errors of [ConfFromFile].
func NetworkPluginConfsFromFiles(networkConfPath, networkName string) ([]*PluginConfig, error) {
	if pathLike(networkName) {
		return nil, fmt.Errorf("invalid network name %q: %s", networkName, noPath)
	}
	dir := filepath.Join(networkConfPath, networkName)
	files, err := ConfFiles(dir, []string{".conf"})
	if err != nil {
		return nil, fmt.Errorf("failed to read plugin config files in %s: %w", dir, err)
	}
	var plugins []*PluginConfig
	for _, file := range files {
		plugin, err := ConfFromFile(file)
		if err != nil {
			return nil, err
		}
		plugins = append(plugins, plugin)
	}
	return plugins, nil
}

// LoadConf returns the first configuration of a single plugin, in a file with the extension .conf
// or .json, that has a name. A broken file before it is an error. It returns a
// [NoConfigsFoundError] if there are no such files, a [NotFoundError] if none has the name, and the
// errors of [ConfFromFile].
func LoadConf(dir string, name string) (*NetworkConfig, error) {
	files, err := sortedConfFiles(dir, ".conf", ".json")
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, NoConfigsFoundError{Dir: dir}
	}
	for _, file := range files {
		conf, err := ConfFromFile(file)
		if err != nil {
			return nil, err
		}
		if conf.Network.Name == name {
			return conf, nil
		}
	}
	return nil, NotFoundError{Dir: dir, Name: name}
}

// LoadConfList is the former name of [LoadNetworkConf].
func LoadConfList(dir string, name string) (*NetworkConfigList, error) {
	return LoadNetworkConf(dir, name)
}

// LoadNetworkConf returns the first network of a name in a directory: first among the files with
// the extension .conflist, then among the configurations of single plugins ([LoadConf]), which it
// turns into lists. A broken file before it is an error. It returns a [NoConfigsFoundError] if
// there are no configurations, a [NotFoundError] if none has the name, and the errors of
// [NetworkConfFromFile] and LoadConf.
func LoadNetworkConf(dir string, name string) (*NetworkConfigList, error) {
	files, err := sortedConfFiles(dir, ".conflist")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		list, err := NetworkConfFromFile(file)
		if err != nil {
			return nil, err
		}
		if list.Name == name {
			return list, nil
		}
	}
	conf, err := LoadConf(dir, name)
	if none := (NoConfigsFoundError{}); errors.As(err, &none) && len(files) > 0 {
		return nil, NotFoundError{Dir: dir, Name: name}
	}
	if err != nil {
		return nil, err
	}
	return ConfListFromConf(conf)
}

// sortedConfFiles returns the files of [ConfFiles] sorted by path.
func sortedConfFiles(dir string, extensions ...string) ([]string, error) {
	files, err := ConfFiles(dir, extensions)
	slices.Sort(files)
	return files, err
}
