// Dates in UTC, for chat templates that name the day: emscripten's C library takes them from its own loader.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <locale>
#include <string>
#include <string_view>

namespace {

constexpr std::string_view kDays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
constexpr std::string_view kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                        "July",    "August",   "September", "October", "November", "December"};

std::string padded(int value, int digits) {
  char text[16];
  std::snprintf(text, sizeof text, "%0*d", digits, value);
  return text;
}

/// The text of one conversion; empty: it is not known.
std::string conversion(char letter, const std::tm& time) {
  const auto day = std::string(kDays[static_cast<unsigned>(time.tm_wday) % 7]);
  const auto month = std::string(kMonths[static_cast<unsigned>(time.tm_mon) % 12]);
  switch (letter) {
    case 'A':
      return day;
    case 'a':
      return day.substr(0, 3);
    case 'B':
      return month;
    case 'b':
    case 'h':
      return month.substr(0, 3);
    case 'd':
      return padded(time.tm_mday, 2);
    case 'H':
      return padded(time.tm_hour, 2);
    case 'I':
      return padded((time.tm_hour + 11) % 12 + 1, 2);
    case 'j':
      return padded(time.tm_yday + 1, 3);
    case 'M':
      return padded(time.tm_min, 2);
    case 'm':
      return padded(time.tm_mon + 1, 2);
    case 'p':
      return time.tm_hour < 12 ? "AM" : "PM";
    case 'S':
      return padded(time.tm_sec, 2);
    case 'Y':
      return padded(time.tm_year + 1900, 4);
    case 'y':
      return padded(time.tm_year % 100, 2);
    case 'Z':
      return "UTC";
    case 'F':
      return conversion('Y', time) + "-" + conversion('m', time) + "-" + conversion('d', time);
    case 'T':
      return conversion('H', time) + ":" + conversion('M', time) + ":" + conversion('S', time);
    case '%':
      return "%";
    default:
      return "";
  }
}

}  // namespace

extern "C" {

/// Howard Hinnant's civil_from_days(): years that begin in March, in eras of 400.
void _localtime_js(const time_t* from, struct tm* to) {
  const auto seconds = static_cast<std::int64_t>(*from);
  const std::int64_t days = seconds >= 0 ? seconds / 86400 : -((86399 - seconds) / 86400);
  const auto second = static_cast<int>(seconds - days * 86400);
  const std::int64_t shifted = days + 719468, era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
  const auto day = static_cast<int>(shifted - era * 146097);
  const int year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
  const int of_year = day - (365 * year + year / 4 - year / 100), month = (5 * of_year + 2) / 153;
  *to = {};
  to->tm_sec = second % 60, to->tm_min = second / 60 % 60, to->tm_hour = second / 3600;
  to->tm_mday = of_year - (153 * month + 2) / 5 + 1;
  to->tm_mon = (month + 2) % 12;
  const int full = static_cast<int>(era * 400) + year + (to->tm_mon < 2 ? 1 : 0);
  to->tm_year = full - 1900;
  to->tm_wday = static_cast<int>(((days + 4) % 7 + 7) % 7);
  const bool leap = full % 4 == 0 && (full % 100 != 0 || full % 400 == 0);
  to->tm_yday = to->tm_mon < 2 ? of_year - 306 : of_year + 59 + (leap ? 1 : 0);
}
void _tzset_js(long* timezone, int* daylight, char** names) {
  static char utc[] = "UTC";
  *timezone = 0, *daylight = 0;
  names[0] = names[1] = utc;
}

std::size_t strftime(char* to, std::size_t most, const char* format, const struct tm* time) {
  std::string text;
  for (const char* p = format; *p != '\0'; ++p)
    if (*p == '%' && p[1] != '\0')
      text += conversion(*++p, *time);
    else
      text += *p;
  if (text.size() >= most) return 0;
  text.copy(to, text.size());
  to[text.size()] = '\0';
  return text.size();
}
std::size_t strftime_l(char* to, std::size_t most, const char* format, const struct tm* time, locale_t) {
  return strftime(to, most, format, time);
}
}
