package invoke

import (
	"context"
	"os"
	"slices"
)

type heldKey struct{}

// WithFile returns a context for calls during which f has to stay open whatever becomes of this program: processes that
// are called with it, delegates of plugins in this process among them, have the file open too, and so do their
// descendants unless they close it. If f is a lock and this program is killed, the lock ends with the last of them.
func WithFile(ctx context.Context, f *os.File) context.Context {
	return context.WithValue(ctx, heldKey{}, append(slices.Clip(heldFiles(ctx)), f))
}

func heldFiles(ctx context.Context) []*os.File {
	files, _ := ctx.Value(heldKey{}).([]*os.File)
	return files
}
