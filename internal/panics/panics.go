// Package panics says what a line of the log may tell of a panic.
package panics

import (
	"fmt"
	"runtime"
)

// Text is what a line says of the value of a panic. Of the runtime's own the text; of others the type, since the text may be made of anything, also of
// what is known of a customer. The stack, which is logged beside it, says where it was.
func Text(value any) string {
	if err, ok := value.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("%T", value)
}
