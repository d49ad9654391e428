// Package docs generates the reference of the plugins, docs/plugins and docs/schema, from the type
// of the configuration, the comments of its fields, and doc.md. Its tests write the files with
// -update and fail if a file is stale. They also check the links, names, examples and language of
// all documents.
package docs
