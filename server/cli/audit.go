package cli

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ax-scheduler/ax/internal/audit"
	"github.com/ax-scheduler/ax/internal/config"
	"github.com/ax-scheduler/ax/internal/seal"
	"github.com/ax-scheduler/ax/internal/store"
)

// errAltered ends a verification that found something.
var errAltered = errors.New("the audit trail is not what was written")

// trailLine is one line of an exported trail: a digest, or an entry with its place in the chain (0 = none yet).
type trailLine struct {
	Digest *audit.Digest `json:"digest,omitempty"`
	Seq    int64         `json:"seq,omitempty"`
	ID     int64         `json:"id,omitempty,string"`
	Entry  *audit.Entry  `json:"entry,omitempty"`
	MAC    string        `json:"mac,omitempty"`
	Chain  string        `json:"chain,omitempty"`
}

type trailView struct {
	Intact   bool            `json:"intact"`
	Entries  int64           `json:"entries"`
	Unsealed int64           `json:"unsealed"`
	Unsigned int64           `json:"unsigned"` // in the chain, and behind the last digest
	Digests  int64           `json:"digests"`
	First    *audit.Finding  `json:"first,omitempty"`
	Findings []audit.Finding `json:"findings"`
}

func auditCommand() *cobra.Command {
	c := &cobra.Command{Use: "audit", Short: "about the audit trail", Args: noArgs}
	c.AddCommand(auditVerify(), auditExport(), auditKey())
	return c
}

func auditVerify() *cobra.Command {
	var file, public string
	var asJSON bool
	c := &cobra.Command{
		Use: "verify", Short: "check that nobody has changed the audit trail", Args: noArgs,
		Long: `Checks every entry's authentication code, the chain that gives each its place, and the signed digests of
the chain; with the digests that the server kept in its data folder also that nothing was cut off at the end.
It only reads, and may run beside a server. Entries of the last seconds have no place in the chain yet: of
these only the authentication code is checked.

With --file it checks an exported trail instead, without a database. --public-key is the installation's key
(ax-server audit key); without it, and without the data folder's master key, signatures are not checked.

It ends with exit code 1 and the first altered entry when the trail is not what was written, and 2 when it could not check.`,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := config.Load(c.Flags())
			if err != nil {
				return err
			}
			var check audit.Checker
			if public != "" {
				raw, err := base64.StdEncoding.DecodeString(public)
				if err != nil || len(raw) != ed25519.PublicKeySize {
					return usageError{fmt.Errorf("--public-key is %q; write what ax-server audit key prints", public)}
				}
				check.Public = raw
			}
			keys, err := trailKeys(cfg)
			switch {
			case err == nil:
				check.Key = keys.Entry
				if check.Public == nil {
					check.Public = keys.Sign.Public().(ed25519.PublicKey) //nolint:forcetypeassert // the key's own
				}
			case file == "" || !errors.Is(err, fs.ErrNotExist):
				return usageError{err}
			}
			if file != "" {
				err = readTrail(file, &check)
			} else {
				err = walkTrail(c.Context(), cfg, &check)
			}
			if err != nil {
				return usageError{err}
			}
			return printTrail(c.OutOrStdout(), &check, asJSON)
		},
	}
	f := c.Flags()
	f.StringVar(&file, "file", "", "check this exported `file` and no database")
	f.StringVar(&public, "public-key", "", "the `key` that digests must be signed with")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	config.Flags(f)
	return c
}

func auditExport() *cobra.Command {
	c := &cobra.Command{
		Use: "export", Short: "print the whole audit trail with its chain, for ax-server audit verify --file", Args: noArgs,
		Long: "Prints the trail as JSON lines: first the digests, then the entries in the order of the chain, then those that have no place in it yet.",
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := config.Load(c.Flags())
			if err != nil {
				return err
			}
			s, err := openTrail(c.Context(), cfg)
			if err != nil {
				return usageError{err}
			}
			defer func() { _ = s.Close() }()
			out := bufio.NewWriter(c.OutOrStdout())
			e := json.NewEncoder(out)
			err = s.AuditChain(c.Context(), func(d audit.Digest) error { return e.Encode(trailLine{Digest: &d}) }, func(x store.SealedEntry) error {
				return e.Encode(trailLine{Seq: x.Seq, ID: x.ID, Entry: x.Entry, MAC: x.MAC, Chain: x.Chain})
			}, func(x audit.Entry, mac string) error { return e.Encode(trailLine{ID: x.ID, Entry: &x, MAC: mac}) })
			return errors.Join(err, out.Flush())
		},
	}
	config.Flags(c.Flags())
	return c
}

func auditKey() *cobra.Command {
	c := &cobra.Command{
		Use: "key", Short: "print the public key that the digests of this installation are signed with", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := config.Load(c.Flags())
			if err != nil {
				return err
			}
			keys, err := trailKeys(cfg)
			if err != nil {
				return usageError{err}
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), base64.StdEncoding.EncodeToString(keys.Sign.Public().(ed25519.PublicKey))) //nolint:forcetypeassert // the key's own
			return err
		},
	}
	config.Flags(c.Flags())
	return c
}

// trailKeys reads the installation's keys; it never makes any.
func trailKeys(c config.Config) (audit.Keys, error) {
	path := filepath.Join(c.Data, "master.key")
	if _, err := os.Stat(path); err != nil {
		return audit.Keys{}, fmt.Errorf("the master key is needed to check entries: %w; name the server's data folder with --data DIR", err)
	}
	s, _, err := seal.LoadOrCreate(path)
	if err != nil {
		return audit.Keys{}, err
	}
	return audit.KeysOf(s.Derive)
}

func openTrail(ctx context.Context, c config.Config) (*store.Store, error) {
	if c.Database == "" {
		if _, err := os.Stat(filepath.Join(c.Data, "ax.db")); err != nil {
			return nil, fmt.Errorf("there is no database in %s; name it with --data DIR or --database DSN", c.Data)
		}
	}
	s, err := store.Open(store.Config{DSN: c.Database, Dir: c.Data})
	if err != nil {
		return nil, err
	}
	if err := s.Ready(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func walkTrail(ctx context.Context, c config.Config, check *audit.Checker) error {
	s, err := openTrail(ctx, c)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	// What was kept outside is read first: a server that runs beside may add to both.
	kept, err := keptDigests(filepath.Join(c.Data, audit.DigestFile))
	if err != nil {
		return err
	}
	err = s.AuditChain(ctx, func(d audit.Digest) error { check.Digest(d); return nil }, func(x store.SealedEntry) error {
		check.Sealed(x.Seq, x.ID, x.Entry, x.MAC, x.Chain)
		return nil
	}, func(e audit.Entry, mac string) error { check.Loose(e, mac); return nil })
	if err != nil {
		return err
	}
	for _, d := range kept {
		check.Kept(d)
	}
	check.End()
	return nil
}

func keptDigests(path string) (kept []audit.Digest, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	d := json.NewDecoder(f)
	for {
		var x audit.Digest
		switch err := d.Decode(&x); {
		case errors.Is(err, io.EOF):
			return kept, nil
		case errors.Is(err, io.ErrUnexpectedEOF): // the server died while it wrote
			return kept, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		kept = append(kept, x)
	}
}

func readTrail(path string, check *audit.Checker) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	d := json.NewDecoder(bufio.NewReader(f))
	for n := 1; ; n++ {
		var x trailLine
		switch err := d.Decode(&x); {
		case errors.Is(err, io.EOF):
			check.End()
			return nil
		case err != nil:
			return fmt.Errorf("%s, line %d: %w", path, n, err)
		}
		switch {
		case x.Digest != nil:
			check.Digest(*x.Digest)
		case x.Seq > 0:
			check.Sealed(x.Seq, x.ID, x.Entry, x.MAC, x.Chain)
		case x.Entry != nil:
			check.Loose(*x.Entry, x.MAC)
		default:
			return fmt.Errorf("%s, line %d is neither a digest nor an entry", path, n)
		}
	}
}

func printTrail(w io.Writer, c *audit.Checker, asJSON bool) error {
	v := trailView{Intact: len(c.Found) == 0, Entries: c.Entries, Unsealed: c.Unsealed, Unsigned: c.Unsigned(), Digests: c.Digests, Findings: c.Found}
	if !v.Intact {
		v.First = &c.Found[max(slices.IndexFunc(c.Found, func(f audit.Finding) bool { return f.ID > 0 }), 0)]
	} else {
		v.Findings = []audit.Finding{}
	}
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		if err := e.Encode(v); err != nil {
			return err
		}
	} else {
		for i, f := range c.Found {
			first := "      "
			if v.First == &c.Found[i] {
				first = "first:"
			}
			place := ""
			if f.Seq > 0 {
				place = fmt.Sprintf(" place %d", f.Seq)
			}
			if f.ID > 0 {
				place += fmt.Sprintf(" entry %d", f.ID)
			}
			if _, err := fmt.Fprintf(w, "%s %s%s: %s\n", first, f.Kind, place, f.Detail); err != nil {
				return err
			}
		}
		sum := "intact"
		if !v.Intact {
			sum = "not intact"
		}
		if _, err := fmt.Fprintf(w, "%s; %d entries in the chain, %d not yet; %d digests, %d entries behind the last\n", sum, v.Entries, v.Unsealed, v.Digests, v.Unsigned); err != nil {
			return err
		}
	}
	if !v.Intact {
		return errAltered
	}
	return nil
}
