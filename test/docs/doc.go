// Package docs makes the reference of the plugins, docs/plugins and docs/schema, out of what is known about them: the
// schema that follows from the type of the configuration, the comments of its fields, and doc.md. It is not part of any
// executable; its tests write the files with -update and fail where they are stale.
package docs
