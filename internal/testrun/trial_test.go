package testrun

import (
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// Every method of testing.TB has to be T's own: one that comes with the embedded interface is a nil pointer.
func TestEveryMethod(t *testing.T) {
	t.Parallel()
	tb, own := reflect.TypeFor[testing.TB](), reflect.TypeFor[*T]()
	for i := range tb.NumMethod() {
		name := tb.Method(i).Name
		m, ok := own.MethodByName(name)
		if !ok {
			continue // not exported
		}
		if file, _ := runtime.FuncForPC(m.Func.Pointer()).FileLine(m.Func.Pointer()); !strings.HasSuffix(file, "trial.go") {
			t.Errorf("testing.TB has a method %s that T has not (it is in %s)", name, file)
		}
	}
}
