//go:build linked

package main

import _ "github.com/tenon-cni/tenon/plugins/all/link"
