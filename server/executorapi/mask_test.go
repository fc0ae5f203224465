package executorapi

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestMask(t *testing.T) {
	hide := mask([]string{"hunter2", "hunter2-longer", "", "  ", "-----BEGIN-----\nabcdefghij\nxy\n"})
	require.Equal(t, "password=******, longer=******", hide("password=hunter2, longer=hunter2-longer"))
	require.Equal(t, "a ******\n", hide("a -----BEGIN-----\nabcdefghij\nxy\n"))
	require.Equal(t, "******\n******\n2xy\n", hide("-----BEGIN-----\nabcdefghij\n2xy\n"), "line by line; short lines are no secrets")
	require.Equal(t, "nothing here  \n", hide("nothing here  \n"), "an empty value masks nothing")
	require.Equal(t, "as it is", mask(nil)("as it is"))
}

// Whatever the values and the text around them, no value is left.
func TestNoSecretIsLeft(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.StringMatching(`[a-c]{3,8}`), 1, 4).Draw(t, "values")
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(append(values, " ", "x", "=")), 0, 20).Draw(t, "text"), "")
		got := mask(values)(text)
		for _, v := range values {
			require.NotContains(t, got, v)
		}
	})
}
