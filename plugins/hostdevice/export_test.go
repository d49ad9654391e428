package hostdevice

// WithSysfs returns the plugin with another directory in place of /sys.
var WithSysfs = define
