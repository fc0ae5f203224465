package schedule

import "github.com/ax-scheduler/ax/internal/message"

// The codes of refusals. They are part of the API: docs/schedule.md lists them, and a
// test holds the two together.
const (
	codeKindUnknown       = "unknown_kind"
	codeForeignSetting    = "setting_of_another_kind"
	codeDialectUnknown    = "unknown_dialect"
	codeClockChange       = "unknown_clock_change"
	codeEmptyExpression   = "empty_expression"
	codeExpressionLong    = "expression_too_long"
	codeCharacter         = "bad_character"
	codeFieldCount        = "field_count"
	codeUnixFields        = "unix_five_fields"
	codeOutOfRange        = "out_of_range"
	codeUnknownName       = "unknown_name"
	codeBadNumber         = "bad_number"
	codeEmptyItem         = "empty_list_item"
	codeBadRange          = "bad_range"
	codeBadStep           = "bad_step"
	codeQuestionMark      = "question_mark"
	codeBothDays          = "both_day_fields"
	codeLastDay           = "bad_last_day"
	codeNearestWeekday    = "bad_nearest_weekday"
	codeNthWeekday        = "bad_nth_weekday"
	codeNeverFires        = "never_fires"
	codeOver              = "schedule_over"
	codeNotATime          = "not_a_time"
	codeUnknownDescriptor = "unknown_descriptor"
	codeAtMissing         = "at_missing"
	codeIntervalMissing   = "interval_missing"
	codeIntervalInvalid   = "interval_invalid"
	codeIntervalRange     = "interval_out_of_range"
	codeWindow            = "end_before_start"
	codeJitterRange       = "jitter_out_of_range"
	codeCalendarUnknown   = "unknown_calendar"
	codeCalendarDate      = "bad_calendar_date"
	codeCalendarRange     = "bad_calendar_range"
	codeCalendarWeekday   = "bad_calendar_weekday"
	codeCalendarTime      = "bad_calendar_time"
	codeCalendarSize      = "calendar_too_large"
	codeAllLeftOut        = "all_left_out"
	codeZoneUnknown       = "unknown_zone"
	codeZoneAmbiguous     = "ambiguous_zone"
	codeZoneSpelling      = "zone_spelling"
	codeZoneOffset        = "zone_is_offset"
	codeZoneLocal         = "zone_of_machine"
)

// The codes of warnings, as stable as those of refusals.
const (
	warnEverySecond    = "every_second"
	warnEveryMinute    = "every_minute"
	warnUnevenStep     = "uneven_step"
	warnSingleStep     = "step_without_effect"
	warnRangeEnd       = "range_end_included"
	warnShortMonths    = "short_months_skipped"
	warnWeekdayNumbers = "weekday_numbers"
	warnStarDays       = "both_days_with_star"
	warnClockChange    = "clock_change"
	warnJitterCapped   = "jitter_capped"
	warnOver           = "over"
)

func refuseField(field, code, token, suggestion, en, zh string) *message.Invalid {
	return &message.Invalid{
		Code: code, Field: field, Token: token, Suggestion: suggestion,
		Message: message.Text{EN: en, ZH: zh},
	}
}
