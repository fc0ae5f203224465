package schedule

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // an empty container has no zone files; a silent UTC would be hours off

	"github.com/ax-scheduler/ax/internal/message"
)

// DefaultZone is the zone of a schedule that names none.
const DefaultZone = "Asia/Shanghai"

// zone is a location with its offsets written out, so that a look-up neither locks
// nor allocates and so that gaps and overlaps can be walked in both directions.
type zone struct {
	loc *time.Location
	// startsAt[i] is the Unix second from which offsets[i] (seconds east of UTC)
	// holds. Neighbours always differ: a transition that only renames is left out.
	startsAt []int64
	offsets  []int64
}

// zones keeps what was read of each zone. It is a memo and nothing else: parsing the
// zone file costs 50 µs and some kilobytes, and a hundred thousand schedules share a
// handful of zones. Only names that exist get in, which bounds it.
//
// It maps a name to its *zone.
var zones sync.Map //nolint:gochecknoglobals // a cache of immutable tables, shared by all schedules

// ParseZone returns the location of an IANA name; an empty name is DefaultZone.
// It refuses, as *message.Invalid with Field "zone", what is not one name of one
// zone: unknown names (with the likely one), abbreviations such as CST, another
// spelling of a known name (with the right one; blanks around it count), bare offsets
// such as GMT+8 (with the IANA name for it), and Local.
func ParseZone(name string) (*time.Location, error) {
	z, err := loadZone(name)
	if err != nil {
		return nil, err
	}
	return z.loc, nil
}

func loadZone(name string) (*zone, error) {
	if name == "" {
		name = DefaultZone
	}
	if z, ok := zones.Load(name); ok {
		return z.(*zone), nil
	}
	if refusal := refuseZone(name); refusal != nil {
		return nil, refusal
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, unknownZone(name)
	}
	z, _ := zones.LoadOrStore(name, newZone(loc))
	return z.(*zone), nil
}

// newZone writes out the offsets of loc from the end of 1969 to the end of lastYear.
func newZone(loc *time.Location) *zone {
	z := &zone{loc: loc}
	until := time.Date(lastYear+1, 1, 2, 0, 0, 0, 0, time.UTC)
	at := time.Date(1969, 12, 30, 0, 0, 0, 0, time.UTC)
	startsAt := int64(math.MinInt64)
	for at.Before(until) {
		_, offset := at.In(loc).Zone()
		if n := len(z.offsets); n == 0 || z.offsets[n-1] != int64(offset) {
			z.startsAt = append(z.startsAt, startsAt)
			z.offsets = append(z.offsets, int64(offset))
		}
		_, end := at.In(loc).ZoneBounds()
		if end.IsZero() {
			break
		}
		// Beyond the table of a zone file, time reports the end of a year as an
		// end, and the 365th day of a leap year as an end before itself.
		if !end.After(at) {
			end = at.Add(24 * time.Hour)
		}
		at = end
		startsAt = at.Unix()
	}
	return z
}

// index returns the i for which offsets[i] holds at the Unix second.
func (z *zone) index(second int64) int {
	low, high := 0, len(z.startsAt)
	for high-low > 1 {
		middle := int(uint(low+high) >> 1)
		if z.startsAt[middle] <= second {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// refuseZone returns why name may not be used, or nil for a name worth looking up.
func refuseZone(name string) *message.Invalid {
	trimmed := strings.TrimSpace(name)
	switch strings.ToUpper(trimmed) {
	case "LOCAL", "LOCALTIME", "FACTORY", "":
		return refuseField("zone", codeZoneLocal, name, "",
			fmt.Sprintf("Time zone %q would depend on the machine; name a zone such as Asia/Shanghai or UTC.", name),
			fmt.Sprintf("时区 %q 取决于所在机器，请写明确的时区，例如 Asia/Shanghai 或 UTC。", name))
	case "CST":
		return ambiguousZone(name, "Asia/Shanghai", "China, the central United States and Cuba", "中国、美国中部和古巴", "America/Chicago")
	case "IST":
		return ambiguousZone(name, "Asia/Kolkata", "India, Ireland and Israel", "印度、爱尔兰和以色列", "Europe/Dublin")
	case "BST":
		return ambiguousZone(name, "Europe/London", "the United Kingdom and Bangladesh", "英国和孟加拉国", "Asia/Dhaka")
	case "AST":
		return ambiguousZone(name, "America/Halifax", "Atlantic Canada and Arabia", "加拿大大西洋地区和阿拉伯地区", "Asia/Riyadh")
	case "EST", "EDT":
		return ambiguousZone(name, "America/New_York", "places with and without summer time, and Australia", "实行与不实行夏令时的地区以及澳大利亚", "America/Panama")
	case "MST", "MDT":
		return ambiguousZone(name, "America/Denver", "places with and without summer time", "实行与不实行夏令时的地区", "America/Phoenix")
	case "PST", "PDT":
		return ambiguousZone(name, "America/Los_Angeles", "the western United States and the Philippines", "美国西部和菲律宾", "Asia/Manila")
	case "CDT":
		return ambiguousZone(name, "America/Chicago", "the central United States, Cuba and China in 1991", "美国中部、古巴和 1991 年的中国", "America/Havana")
	case "SST":
		return ambiguousZone(name, "Asia/Singapore", "Samoa and Singapore", "萨摩亚和新加坡", "Pacific/Pago_Pago")
	case "JST":
		return ambiguousZone(name, "Asia/Tokyo", "Japan and Jerusalem", "日本和耶路撒冷", "Asia/Jerusalem")
	case "Z":
		return misspeltZone(name, "UTC")
	}
	if seconds, ok := bareOffset(trimmed); ok {
		return offsetZone(name, seconds)
	}
	if right, ok := canonicalZone(trimmed); ok {
		if right == name {
			return nil
		}
		return misspeltZone(name, right)
	}
	first, _, _ := strings.Cut(name, "/")
	// These trees exist on some hosts only; "right" also counts leap seconds.
	if strings.EqualFold(first, "posix") || strings.EqualFold(first, "right") {
		return unknownZone(name)
	}
	return nil
}

func ambiguousZone(name, likely, placesEN, placesZH, other string) *message.Invalid {
	return refuseField("zone", codeZoneAmbiguous, name, likely,
		fmt.Sprintf("Time zone %s is ambiguous: it is used for %s. Write a full name, for example %s or %s.", name, placesEN, likely, other),
		fmt.Sprintf("时区 %s 有歧义：%s都在使用。请写完整名称，例如 %s 或 %s。", name, placesZH, likely, other))
}

func misspeltZone(name, right string) *message.Invalid {
	return refuseField("zone", codeZoneSpelling, name, right,
		fmt.Sprintf("Time zone %q is spelled %s.", name, right),
		fmt.Sprintf("时区 %q 的正确写法是 %s。", name, right))
}

func offsetZone(name string, seconds int) *message.Invalid {
	likely := ""
	for _, known := range offsetNames {
		if known.seconds == seconds {
			likely = known.name
		}
	}
	if likely == "" && seconds%3600 == 0 && seconds >= -12*3600 && seconds <= 14*3600 {
		likely = fmt.Sprintf("Etc/GMT%+d", -seconds/3600)
	}
	if likely == "" {
		return unknownZone(name)
	}
	if strings.HasPrefix(likely, "Etc/") || seconds%3600 != 0 || seconds == 0 {
		return refuseField("zone", codeZoneOffset, name, likely,
			fmt.Sprintf("%s is an offset, not a time zone. Write %s.", name, likely),
			fmt.Sprintf("%s 是偏移量，不是时区。请写 %s。", name, likely))
	}
	fixed := fmt.Sprintf("Etc/GMT%+d", -seconds/3600)
	return refuseField("zone", codeZoneOffset, name, likely,
		fmt.Sprintf("%s is an offset, not a time zone. Write %s, or %s for the bare offset (its sign is reversed).", name, likely, fixed),
		fmt.Sprintf("%s 是偏移量，不是时区。请写 %s；只要偏移量请写 %s（符号相反）。", name, likely, fixed))
}

// offsetNames are the zones that somebody who writes a bare offset most likely means.
var offsetNames = [...]struct { //nolint:gochecknoglobals // a table that nothing writes
	seconds int
	name    string
}{
	{0, "UTC"},
	{8 * 3600, "Asia/Shanghai"},
	{9 * 3600, "Asia/Tokyo"},
	{5*3600 + 1800, "Asia/Kolkata"},
	{5*3600 + 2700, "Asia/Kathmandu"},
	{3*3600 + 1800, "Asia/Tehran"},
	{4*3600 + 1800, "Asia/Kabul"},
	{6*3600 + 1800, "Asia/Yangon"},
	{9*3600 + 1800, "Australia/Darwin"},
}

// bareOffset reads "+08:00", "GMT+8", "UTC+0800" and the like.
func bareOffset(name string) (seconds int, ok bool) {
	rest := strings.ToUpper(name)
	// GMT+0 and GMT-0 are names of the database.
	if rest == "GMT+0" || rest == "GMT-0" {
		return 0, false
	}
	for _, prefix := range []string{"GMT", "UTC", "UT"} {
		if after, found := strings.CutPrefix(rest, prefix); found {
			rest = after
			break
		}
	}
	rest = strings.TrimSpace(rest)
	if rest == "" || rest[0] != '+' && rest[0] != '-' {
		return 0, false
	}
	sign, digits := 1, rest[1:]
	if rest[0] == '-' {
		sign = -1
	}
	hours, minutes, colon := strings.Cut(digits, ":")
	if !colon && len(digits) > 2 && len(digits) <= 4 {
		hours, minutes = digits[:len(digits)-2], digits[len(digits)-2:]
	}
	if minutes == "" {
		minutes = "0"
	}
	h, errHours := strconv.ParseUint(hours, 10, 8)
	m, errMinutes := strconv.ParseUint(minutes, 10, 8)
	if errHours != nil || errMinutes != nil || h > 14 || m > 59 {
		return 0, false
	}
	return sign * (int(h)*3600 + int(m)*60), true
}

// canonicalZone returns the known name that equals name but for case.
func canonicalZone(name string) (string, bool) {
	for known := range strings.FieldsSeq(zoneNames) {
		if strings.EqualFold(known, name) {
			return known, true
		}
	}
	return "", false
}

// zoneAliases are names that people try although the database has another city.
var zoneAliases = map[string]string{ //nolint:gochecknoglobals // a table that nothing writes
	"beijing": "Asia/Shanghai", "peking": "Asia/Shanghai", "shenzhen": "Asia/Shanghai",
	"guangzhou": "Asia/Shanghai", "hangzhou": "Asia/Shanghai", "chengdu": "Asia/Shanghai",
	"wuhan": "Asia/Shanghai", "nanjing": "Asia/Shanghai", "china": "Asia/Shanghai",
	"china standard time": "Asia/Shanghai", "tokyo standard time": "Asia/Tokyo", "osaka": "Asia/Tokyo",
	"delhi": "Asia/Kolkata", "new_delhi": "Asia/Kolkata", "mumbai": "Asia/Kolkata", "bangalore": "Asia/Kolkata",
	"india standard time": "Asia/Kolkata", "hanoi": "Asia/Ho_Chi_Minh", "abu_dhabi": "Asia/Dubai",
	"san_francisco": "America/Los_Angeles", "seattle": "America/Los_Angeles",
	"pacific standard time": "America/Los_Angeles", "eastern standard time": "America/New_York",
	"boston": "America/New_York", "washington": "America/New_York", "miami": "America/New_York",
	"dallas": "America/Chicago", "houston": "America/Chicago", "montreal": "America/Toronto",
	"rio_de_janeiro": "America/Sao_Paulo", "brasilia": "America/Sao_Paulo",
	"munich": "Europe/Berlin", "frankfurt": "Europe/Berlin", "hamburg": "Europe/Berlin",
	"barcelona": "Europe/Madrid", "milan": "Europe/Rome", "geneva": "Europe/Zurich",
	"canberra": "Australia/Sydney", "wellington": "Pacific/Auckland",
}

func unknownZone(name string) *message.Invalid {
	likely := nearestZone(strings.TrimSpace(name))
	en, zh := fmt.Sprintf("Unknown time zone %s.", name), fmt.Sprintf("未知时区 %s。", name)
	if likely != "" {
		en = fmt.Sprintf("Unknown time zone %s. Did you mean %s?", name, likely)
		zh = fmt.Sprintf("未知时区 %s，是否为 %s？", name, likely)
	}
	return refuseField("zone", codeZoneUnknown, name, likely, en, zh)
}

// nearestZone returns the name that was probably meant, or "" when nothing is close.
func nearestZone(name string) string {
	if len(name) > 64 {
		return ""
	}
	lower := strings.ToLower(strings.ReplaceAll(name, " ", "_"))
	city := lower[strings.LastIndexByte(lower, '/')+1:]
	if right, ok := zoneAliases[city]; ok {
		return right
	}
	if right, ok := zoneAliases[strings.ToLower(name)]; ok {
		return right
	}
	best, bestDistance := "", 4
	for known := range strings.FieldsSeq(zoneNames) {
		knownLower := strings.ToLower(known)
		// The city alone, or under the wrong continent.
		if knownLower[strings.LastIndexByte(knownLower, '/')+1:] == city && strings.Contains(known, "/") && len(city) > 2 {
			return known
		}
		// Up to a third of the name may be wrong, three letters at most.
		if d := distance(knownLower, lower); d < bestDistance && d*3 <= len(lower) {
			best, bestDistance = known, d
		}
	}
	return best
}

// distance is the Levenshtein distance of two short texts.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
