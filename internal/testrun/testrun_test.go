package testrun

import (
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// T must implement every method of testing.TB: a method of the embedded interface would be a nil pointer.
func TestEveryMethod(t *testing.T) {
	t.Parallel()
	tb, own := reflect.TypeFor[testing.TB](), reflect.TypeFor[*T]()
	for i := range tb.NumMethod() {
		name := tb.Method(i).Name
		m, ok := own.MethodByName(name)
		if !ok {
			continue // not exported
		}
		if file, _ := runtime.FuncForPC(m.Func.Pointer()).FileLine(m.Func.Pointer()); !strings.HasSuffix(file, "testrun.go") {
			t.Errorf("T does not implement the method %s of testing.TB (promoted from %s)", name, file)
		}
	}
}
