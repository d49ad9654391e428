package hostdevice

// WithSysfs is the plugin with another folder in the place of /sys.
var WithSysfs = define
