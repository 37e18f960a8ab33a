# Like backends.py, with the parsers of Rack, which Rails uses.
require "base64"
require "json"
require "rack"
require "stringio"

def texts(value)
  case value
  when String then [value]
  when Array then value.flat_map { |item| texts(item) }
  else []
  end
end

def of_hash(form)
  return [] unless form.is_a?(Hash)

  user = form["user"]
  texts(form["email"]) + texts(form["user.email"]) + (user.is_a?(Hash) ? texts(user["email"]) : [])
end

# A backend that parses each body as JSON, whatever its type.
def read_json(body)
  of_hash(JSON.parse(body))
rescue StandardError
  []
end

def read(type, body)
  return of_hash(JSON.parse(body)) if type.downcase.start_with?("application/json")

  env = {
    "REQUEST_METHOD" => "POST", "CONTENT_TYPE" => type, "CONTENT_LENGTH" => body.bytesize.to_s,
    "rack.input" => StringIO.new(body), "QUERY_STRING" => ""
  }
  of_hash(Rack::Request.new(env).POST)
end

$stdin.each_line do |line|
  form = JSON.parse(line)
  body = Base64.decode64(form["body"])
  values = begin
    read(form["type"], body)
  rescue StandardError
    [] # The backend refuses the form.
  end
  found = { "rack" => values, "ruby json, any type" => read_json(body) }
  found.delete_if { |name, values| name.end_with?("any type") && values.empty? }
  found.transform_values! { |values| values.map { |value| value.dup.force_encoding("UTF-8").scrub } }
  puts JSON.generate(found)
  $stdout.flush
end
