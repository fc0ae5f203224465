package seal

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func newSealer(t testing.TB) *Sealer {
	t.Helper()
	key := make([]byte, KeySize)
	_, _ = rand.Read(key)
	s, err := New(key)
	require.NoError(t, err)
	return s
}

func TestSealOpensWithTheSameRecordOnly(t *testing.T) {
	s := newSealer(t)
	sealed, err := s.Seal("app_key|7|1", []byte("the key of app 7"))
	require.NoError(t, err)
	require.NotContains(t, sealed, "the key")
	plain, err := s.Open("app_key|7|1", sealed)
	require.NoError(t, err)
	require.Equal(t, "the key of app 7", string(plain))

	again, err := s.Seal("app_key|7|1", []byte("the key of app 7"))
	require.NoError(t, err)
	require.NotEqual(t, sealed, again, "each record has its own data key and nonces")
}

func TestOpenRefusesSwappedRows_TSEC2(t *testing.T) {
	s := newSealer(t)
	a, err := s.Seal("1|token|1", []byte("of namespace 1"))
	require.NoError(t, err)
	_, err = s.Open("2|token|1", a)
	require.ErrorIs(t, err, ErrDamaged)
	_, err = s.Open("", a)
	require.ErrorIs(t, err, ErrDamaged)

	// Nor can the halves of two values of one record be joined.
	b, err := s.Seal("1|token|1", []byte("another"))
	require.NoError(t, err)
	pa, pb := strings.Split(a, "."), strings.Split(b, ".")
	_, err = s.Open("1|token|1", strings.Join([]string{pa[0], pa[1], pa[2], pb[3]}, "."))
	require.ErrorIs(t, err, ErrDamaged)
}

func TestOpenRefusesEveryFlippedBit_TSEC2(t *testing.T) {
	s := newSealer(t)
	sealed, err := s.Seal("x", []byte("plain"))
	require.NoError(t, err)
	for i := range len(sealed) {
		for bit := range 8 {
			changed := []byte(sealed)
			changed[i] ^= 1 << bit
			_, err := s.Open("x", string(changed))
			require.Error(t, err, "byte %d bit %d", i, bit)
		}
		_, err = s.Open("x", sealed[:i])
		require.Error(t, err, "cut at %d", i)
	}
	_, err = s.Open("x", sealed+"A")
	require.Error(t, err)
}

func TestOpenNamesAnotherMasterKey(t *testing.T) {
	s, other := newSealer(t), newSealer(t)
	sealed, err := s.Seal("x", []byte("plain"))
	require.NoError(t, err)
	_, err = other.Open("x", sealed)
	require.ErrorIs(t, err, ErrOtherKey)
	_, err = other.Open("x", strings.Replace(sealed, s.KeyID(), other.KeyID(), 1))
	require.ErrorIs(t, err, ErrDamaged, "saying it is ours does not help")
}

func TestCanaryRefusesAnotherMasterKeyAndSaysWhatToDo(t *testing.T) {
	s := newSealer(t)
	text, err := s.Canary()
	require.NoError(t, err)
	require.NoError(t, s.CheckCanary(text))
	err = newSealer(t).CheckCanary(text)
	require.ErrorIs(t, err, ErrOtherKey)
	require.ErrorContains(t, err, "another master.key")
	require.ErrorContains(t, err, "copy master.key from the server that made the database")
	require.Error(t, s.CheckCanary(""))
	forged, err := s.Seal(canaryAAD, []byte("something else"))
	require.NoError(t, err)
	require.ErrorIs(t, s.CheckCanary(forged), ErrDamaged)
}

func TestSealProperty(t *testing.T) {
	s := newSealer(t)
	rapid.Check(t, func(t *rapid.T) {
		aad, other := rapid.String().Draw(t, "aad"), rapid.String().Draw(t, "other")
		plain := rapid.SliceOf(rapid.Byte()).Draw(t, "plain")
		sealed, err := s.Seal(aad, plain)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Open(aad, sealed)
		if err != nil || !bytes.Equal(got, plain) {
			t.Fatalf("opened %q, %v", got, err)
		}
		if _, err := s.Open(other, sealed); (err == nil) != (other == aad) {
			t.Fatalf("opened under %q", other)
		}
	})
}

func TestLoadOrCreateMakesAKeyOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "master.key")
	a, created, err := LoadOrCreate(path)
	require.NoError(t, err)
	require.True(t, created)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.EqualValues(t, KeySize, info.Size())

	b, created, err := LoadOrCreate(path)
	require.NoError(t, err)
	require.False(t, created)
	sealed, err := a.Seal("x", []byte("plain"))
	require.NoError(t, err)
	_, err = b.Open("x", sealed)
	require.NoError(t, err)

	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1, "nothing but the key stays behind")
}

func TestLoadOrCreateAtOnceAgrees(t *testing.T) {
	path := filepath.Join(t.TempDir(), "master.key")
	const n = 16
	ids, made := make([]string, n), make([]bool, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			s, created, err := LoadOrCreate(path)
			if err == nil {
				ids[i], made[i] = s.KeyID(), created
			}
		})
	}
	wg.Wait()
	count := 0
	for i := range n {
		require.NotEmpty(t, ids[i])
		require.Equal(t, ids[0], ids[i])
		if made[i] {
			count++
		}
	}
	require.Equal(t, 1, count)
}

func TestLoadOrCreateRefusesBadFiles_TBOOT2(t *testing.T) {
	random := make([]byte, KeySize)
	_, _ = rand.Read(random)
	for name, c := range map[string]struct {
		content []byte
		mode    os.FileMode
		says    string
	}{
		"empty":                      {nil, 0o600, "has 0 bytes"},
		"one byte short":             {random[:31], 0o600, "has 31 bytes, must have exactly 32"},
		"a newline too many":         {append(bytes.Clone(random), '\n'), 0o600, "has 33 bytes"},
		"one byte repeated":          {bytes.Repeat([]byte{7}, 32), 0o600, "repeats"},
		"all zero":                   {make([]byte, 32), 0o600, "repeats"},
		"a word repeated":            {bytes.Repeat([]byte("changeme"), 4), 0o600, "repeats"},
		"sixteen bytes twice":        {append(bytes.Clone(random[:16]), random[:16]...), 0o600, "repeats"},
		"readable by everybody":      {random, 0o644, "chmod 600"},
		"writable by everybody":      {random, 0o602, "chmod 600"},
		"short and readable by all":  {random[:3], 0o604, "chmod 600"},
		"twelve different at most":   {[]byte("abababababababababababcdefgabcde"), 0o600, "repeats"},
		"text of the default tokens": {[]byte("default_token"), 0o600, "has 13 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "master.key")
			require.NoError(t, os.WriteFile(path, c.content, 0o600))
			require.NoError(t, os.Chmod(path, c.mode))
			_, created, err := LoadOrCreate(path)
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, err, path)
			require.False(t, created)
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, len(c.content), len(after), "the file is left alone")
		})
	}
	_, _, err := LoadOrCreate(t.TempDir())
	require.ErrorContains(t, err, "not a regular file")
	_, _, err = LoadOrCreate(filepath.Join(t.TempDir(), "missing", "master.key"))
	require.ErrorContains(t, err, "directory must exist")
}

func FuzzOpen(f *testing.F) {
	s := newSealer(f)
	sealed, err := s.Seal("x", []byte("plain"))
	require.NoError(f, err)
	f.Add(sealed)
	f.Add("ax1." + s.KeyID() + "..")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := s.Open("x", text); err == nil && text != sealed {
			t.Fatalf("opened %q", text)
		}
	})
}
