package kernel

// Tests read and write settings in the namespace of the calling thread.
var (
	SettingPath   = settingPath
	ErrSettingKey = errSettingKey
	ReadSetting   = readSetting
)

func (s Setting) Apply() (restore func() error, err error) { return s.set() }
